// Questions in plain words about text: one that a paragraph answers, in RULER's form, and those that ask for
// a long answer, which is judged beside the full cache's. Last the text alone, on which policies can be
// judged where nothing is asked.
#include <memory>

#include "traces/workloads/filler_text.hpp"
#include "traces/workloads/passages.hpp"
#include "traces/workloads/task.hpp"

namespace kvsim::workload {
namespace {

constexpr const char* kTask =
    "Answer the question based on the given documents. Only give me the answer and do not output any other "
    "words.\n\n";
constexpr const char* kDocuments = "The following are given documents.\n\n";

/// A question about the whole text, whose answer nothing but the full cache's can be compared with; or none.
Task open_task(const TaskOptions& options, const Draws& draws, const std::string& question) {
  Task task;
  task.turns.emplace_back();
  task.compose = [question, filler = FillerText(*options.passages, draws)](std::uint64_t size,
                                                                           std::uint64_t) mutable {
    SpannedText prompt;
    prompt.add(filler.first(size), Role::context).add(question, Role::question);
    return prompt;
  };
  return task;
}

}  // namespace

Task passage_question_task(const TaskOptions& options, const Draws& draws) {
  const PassageQuestion asked = draws.sample(passage_questions(), 1, "question").front();
  // The paragraph stands in other text than its own passage, which would say the same again.
  const auto others = std::make_shared<std::vector<Passage>>(*options.passages);
  std::erase_if(*others, [&](const Passage& each) { return each.name == asked.passage; });
  Task task;
  task.turns.push_back({Expect::holds_any, {}});
  for (const std::string& answer : asked.answers) task.turns.front().texts.push_back(" " + answer);
  task.compose = [others, question = "Question: " + asked.question,
                  paragraph = Insertion{draws.depth(), "\n\n" + paragraph_of(asked) + "\n\n", Role::evidence},
                  filler = FillerText(*others, draws)](std::uint64_t size, std::uint64_t) mutable {
    SpannedText prompt;
    prompt.add(std::string(kTask) + kDocuments, Role::question);
    weave(prompt, filler.first(size), {paragraph});
    prompt.add(std::string("\n\n") + kTask + question, Role::question).begin_answer(" Answer:");
    return prompt;
  };
  return task;
}

Task summary_task(const TaskOptions& options, const Draws& draws) {
  return open_task(options, draws, "\n\nSummarize the text above in a few paragraphs.");
}

Task continuation_task(const TaskOptions& options, const Draws& draws) {
  return open_task(options, draws, "\n\nContinue the text above in the same style, where it ends.");
}

Task list_task(const TaskOptions& options, const Draws& draws) {
  return open_task(options, draws, "\n\nList the most important points of the text above, one per line.");
}

Task explanation_task(const TaskOptions& options, const Draws& draws) {
  return open_task(options, draws, "\n\nExplain the text above to somebody who is new to its subject.");
}

Task text_task(const TaskOptions& options, const Draws& draws) {
  return open_task(options, draws, "");
}

}  // namespace kvsim::workload
