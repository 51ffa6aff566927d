#pragma once
/// What the full cache answers of a workload: whether policies can be ranked on it at all. Answers that the
/// model itself does not know say nothing of what a policy evicts.
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Share of a workload's questions that the full cache must answer before policies are ranked on it.
inline constexpr double kLeastFull = 0.9;
/// Questions that the full cache must answer before policies are ranked by `kept`, the share of them that a
/// policy answers: with 100 a 95 % interval is at most 20 points wide.
inline constexpr std::uint64_t kLeastAnswered = 100;

/// Questions of a workload that were judged at a cut, and those that the full cache answers right.
struct FullAnswers {
  std::string workload, cut;
  std::uint64_t asked = 0, right = 0;

  double share() const { return static_cast<double>(right) / static_cast<double>(asked); }
  bool reaches(double least) const { return share() >= least; }
  bool enough_kept() const { return right >= kLeastAnswered; }
};

/// In order of appearance; a workload without judged questions is not listed. `answers` have the columns of
/// the rows of kvsim evaluate. A question is one turn of one item; all rows tell the same of the full cache
/// unless it answered in several ways, and then each has to be right.
std::vector<FullAnswers> full_answers(const Records& answers);

/// Whether policies may be ranked: none is listed that does not reach `least`.
bool may_rank(const std::vector<FullAnswers>& all, const std::string& workload, const std::string& cut,
              double least);
/// The column that ranks policies: "right" where may_rank() allows it, else "kept" where the full cache
/// answers enough questions; null: nothing ranks them.
const char* ranked_by(const std::vector<FullAnswers>& all, const std::string& workload,
                      const std::string& cut, double least);

}  // namespace kvsim::analysis
