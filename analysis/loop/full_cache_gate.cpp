#include "analysis/loop/full_cache_gate.hpp"

#include "analysis/loop/answer_rows.hpp"
#include "analysis/results/numbers.hpp"

namespace kvsim::analysis {

FullAnswersByCut full_answers(const Records& rows) {
  const std::size_t workload = rows.column("workload"), cut = rows.column("cut");
  const std::size_t item = rows.column("item"), turn = rows.column("turn");
  const std::size_t right = rows.column("right_full");
  std::map<std::pair<std::string, std::string>, std::map<std::pair<Value, Value>, bool>> questions;
  for (const std::vector<Value>& row : rows.rows) {
    const auto answered = number(row[right]);
    if (!answered) continue;
    auto& of_cut = questions[{text(row[workload]), text(row[cut])}];
    const auto [question, fresh] = of_cut.try_emplace({row[item], row[turn]}, true);
    question->second = question->second && *answered == 1;
  }
  FullAnswersByCut out;
  for (const auto& [place, of_cut] : questions)
    for (const auto& [question, answered] : of_cut) {
      out[place].asked += 1;
      out[place].right += answered ? 1 : 0;
    }
  return out;
}

std::vector<std::string> unranked_notes(const Records& rows, double least_full) {
  std::vector<std::string> notes;
  const auto percent = [](double share) { return rounded_text(100 * share, 0) + " %"; };
  for (const auto& [place, answers] : full_answers(rows)) {
    if (answers.reaches(least_full)) continue;
    const auto& [workload, cut] = place;
    const double share = static_cast<double>(answers.right) / static_cast<double>(answers.asked);
    notes.push_back((workload.empty() ? "prompts of no workload" : "workload " + workload) + ", cut " + cut +
                    ": the full cache answers " + std::to_string(answers.right) + " of " +
                    std::to_string(answers.asked) + " (" + percent(share) + "): policies are not ranked");
  }
  if (!notes.empty())
    notes.push_back("Below " + percent(least_full) +
                    " right, what a policy loses is not told from what the model does not know. "
                    "Chance level not known.");
  return notes;
}

}  // namespace kvsim::analysis
