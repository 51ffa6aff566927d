// The copy task: the text contains a list of words, the prompt ends with its first half, and the answer is
// the words that follow.
#include "traces/workloads/filler_text.hpp"
#include "traces/workloads/task.hpp"
#include "traces/workloads/word_lists.hpp"

namespace kvsim::workload {
namespace {

constexpr std::uint64_t kListed = 24, kShown = 12, kAnswered = 4;

std::string joined(const std::vector<std::string>& words, std::uint64_t begin, std::uint64_t end) {
  std::string text;
  for (std::uint64_t i = begin; i < end; ++i) text += " " + words[i];
  return text;
}

}  // namespace

Task copy_task(const TaskOptions& options, const Draws& draws) {
  const std::vector<std::string> words = draws.sample(all_words(), kListed, "words");
  Task task;
  task.turns.push_back({Expect::first, {joined(words, kShown, kShown + kAnswered)}});
  task.compose = [insertion = Insertion{draws.depth(), joined(words, 0, kListed) + ".", Role::evidence},
                  question = joined(words, 0, kShown),
                  filler = FillerText(*options.passages, draws)](std::uint64_t size, std::uint64_t) mutable {
    SpannedText prompt;
    weave(prompt, filler.first(size), {insertion});
    prompt.begin_answer(question);
    return prompt;
  };
  return task;
}

}  // namespace kvsim::workload
