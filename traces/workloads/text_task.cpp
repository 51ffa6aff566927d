// The text task: plain text without a question, on which policies can be judged where nothing is asked.
#include "traces/workloads/filler_text.hpp"
#include "traces/workloads/task.hpp"

namespace kvsim::workload {

Task text_task(const TaskOptions& options, const Draws& draws) {
  Task task;
  task.turns.emplace_back();
  task.compose = [filler = FillerText(*options.passages, draws)](std::uint64_t size, std::uint64_t) mutable {
    SpannedText prompt;
    prompt.add(filler.first(size), Role::context);
    return prompt;
  };
  return task;
}

}  // namespace kvsim::workload
