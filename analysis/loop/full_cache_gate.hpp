#pragma once
/// What the full cache answers of a workload: whether policies can be ranked on it at all.
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Questions that were judged, and those that the full cache answers right.
struct FullAnswers {
  std::uint64_t asked = 0, right = 0;

  bool reaches(double least) const {
    return asked == 0 || static_cast<double>(right) / static_cast<double>(asked) >= least;
  }
};

/// By workload and cut, as columns of those names hold them.
using FullAnswersByCut = std::map<std::pair<std::string, std::string>, FullAnswers>;

/// `rows` have answer_columns(). A question is one turn of one item; all rows tell the same of the full cache
/// unless it answered in several ways, and then each has to be right.
FullAnswersByCut full_answers(const Records& rows);

}  // namespace kvsim::analysis
