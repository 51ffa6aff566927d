// The passkey task: a number hidden in meaningless sentences that repeat (after Mohtashami and Jaggi,
// Landmark Attention, 2023).
#include "traces/workloads/filler_text.hpp"
#include "traces/workloads/task.hpp"

namespace kvsim::workload {
namespace {

constexpr const char* kPasskeyInstruction =
    "Somewhere in the text below there is a pass key. Find it and keep it in mind.\n\n";
constexpr const char* kQuestion = "\n\nWhat is the pass key?";
constexpr const char* kAnswer = " The pass key is";
constexpr const char* kSentences =
    "The hills are quiet. The wind comes from the west. Boats lie at the shore. Nothing happens here, and "
    "then "
    "it happens again. ";
constexpr int kTimesPerParagraph = 8;

const std::vector<Passage>& noise() {
  static const std::vector<Passage> kNoise = [] {
    std::string paragraph;
    for (int i = 0; i < kTimesPerParagraph; ++i) paragraph += kSentences;
    return std::vector<Passage>{{"noise", paragraph}};
  }();
  return kNoise;
}

}  // namespace

Task passkey_task(const TaskOptions&, const Draws& draws) {
  const std::string number = std::to_string(10000 + draws.below(90000, "pass key"));
  Task task;
  task.turns.push_back({Expect::first, {" " + number}});
  task.compose = [insertion = Insertion{draws.depth(),
                                        " The pass key is " + number + ". Keep " + number + " in mind.",
                                        Role::evidence},
                  filler = FillerText(noise(), draws)](std::uint64_t size, std::uint64_t) mutable {
    SpannedText prompt;
    prompt.add(kPasskeyInstruction, Role::question);
    weave(prompt, filler.first(size), {insertion});
    prompt.add(kQuestion, Role::question).begin_answer(kAnswer);
    return prompt;
  };
  return task;
}

}  // namespace kvsim::workload
