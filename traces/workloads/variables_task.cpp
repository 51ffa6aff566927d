// The variables task: text sets variables, and one of them is the copy of a copy: " set c river;" ... " set d
// c;" ... " get d" -> " c river".
#include <algorithm>

#include "traces/workloads/filler_text.hpp"
#include "traces/workloads/task.hpp"
#include "traces/workloads/word_lists.hpp"

namespace kvsim::workload {
namespace {

constexpr std::uint64_t kOthers = 2;  ///< variables that the question does not ask for

std::string set_text(const std::string& name, const std::string& value) {
  return " set " + name + " " + value + ";";
}

/// The depths of the links of a chain, in order; the first is the depth of the prompt's answer.
std::vector<double> chain_depths(std::uint64_t links, const Draws& draws) {
  std::vector<double> depths{draws.depth()};
  for (std::uint64_t i = 1; i < links; ++i)
    depths.push_back(depths[0] + (1.0 - depths[0]) * draws.uniform("link", i));
  std::sort(depths.begin(), depths.end());
  return depths;
}

}  // namespace

Task variables_task(const TaskOptions& options, const Draws& draws) {
  const std::uint64_t links = options.hops + 1;
  const std::vector<std::string> names = draws.sample(variable_names(), links + kOthers, "names");
  const std::vector<std::string> values = draws.sample(value_words(), 1 + kOthers, "values");
  const std::vector<double> depths = chain_depths(links, draws);
  std::vector<Insertion> settings{{depths[0], set_text(names[0], values[0]), Role::evidence}};
  for (std::uint64_t i = 1; i < links; ++i)
    settings.push_back({depths[i], set_text(names[i], names[i - 1]), Role::evidence});
  for (std::uint64_t i = 0; i < kOthers; ++i)
    settings.push_back({draws.uniform("other", i), set_text(names[links + i], values[1 + i]), Role::context});
  std::string answer;
  for (std::uint64_t i = options.hops; i > 0; --i) answer += " " + names[i - 1];
  Task task;
  task.turns.push_back({Expect::first, {answer + " " + values[0]}});
  task.compose = [settings, question = " get " + names[options.hops],
                  filler = FillerText(*options.passages, draws)](std::uint64_t size, std::uint64_t) mutable {
    SpannedText prompt;
    weave(prompt, filler.first(size), settings);
    prompt.begin_answer(question);
    return prompt;
  };
  return task;
}

}  // namespace kvsim::workload
