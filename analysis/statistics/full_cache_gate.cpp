#include "analysis/statistics/full_cache_gate.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace kvsim::analysis {

std::vector<FullAnswers> full_answers(const Records& answers) {
  std::vector<FullAnswers> out;
  if (answers.rows.empty()) return out;
  const std::size_t workload = answers.column("workload"), cut = answers.column("cut"),
                    item = answers.column("item"), turn = answers.column("turn"),
                    right = answers.column("right_full");
  std::vector<std::map<std::pair<Value, Value>, bool>> questions;  // as `out`
  for (const std::vector<Value>& row : answers.rows) {
    const auto answered = number(row[right]);
    if (!answered) continue;
    const std::string kind = exact_field(row[workload], ""), at = exact_field(row[cut], "");
    const auto known = std::ranges::find_if(
        out, [&](const FullAnswers& each) { return each.workload == kind && each.cut == at; });
    const auto place = static_cast<std::size_t>(known - out.begin());
    if (known == out.end()) {
      out.push_back({kind, at});
      questions.emplace_back();
    }
    const auto [question, fresh] = questions[place].try_emplace({row[item], row[turn]}, true);
    question->second = question->second && *answered == 1;
  }
  for (std::size_t place = 0; place < out.size(); ++place)
    for (const auto& [question, answered] : questions[place]) {
      out[place].asked += 1;
      out[place].right += answered ? 1 : 0;
    }
  return out;
}

bool may_rank(const std::vector<FullAnswers>& all, const std::string& workload, const std::string& cut,
              double least) {
  return std::ranges::none_of(all, [&](const FullAnswers& each) {
    return each.workload == workload && each.cut == cut && !each.reaches(least);
  });
}

const char* ranked_by(const std::vector<FullAnswers>& all, const std::string& workload,
                      const std::string& cut, double least) {
  if (may_rank(all, workload, cut, least)) return "right";
  const bool enough = std::ranges::any_of(all, [&](const FullAnswers& each) {
    return each.workload == workload && each.cut == cut && each.enough_kept();
  });
  return enough ? "kept" : nullptr;
}

}  // namespace kvsim::analysis
