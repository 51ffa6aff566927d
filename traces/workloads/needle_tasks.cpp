// Tasks with facts hidden in text: a single fact, several keys, several values of a key, several questions.
#include "traces/workloads/filler_text.hpp"
#include "traces/workloads/task.hpp"
#include "traces/workloads/word_lists.hpp"

namespace kvsim::workload {
namespace {

std::string question_text(Style style, const std::string& key) {
  return style == Style::pairs ? " << " + key : " The code of " + key + " is";
}

std::string answered_text(Style style, const std::string& key, const std::string& value) {
  return question_text(style, key) + " " + value + (style == Style::pairs ? " >>" : ".");
}

struct Fact {
  std::string key, value;
  double depth;
};

/// Draws facts with different keys and values. The first fact is placed at the depth of the prompt's answer,
/// the others at random depths.
std::vector<Fact> draw_facts(std::uint64_t n, const Draws& draws) {
  const std::vector<std::string> keys = draws.sample(key_words(), n, "keys");
  const std::vector<std::string> values = draws.sample(value_words(), n, "values");
  std::vector<Fact> facts;
  for (std::uint64_t i = 0; i < n; ++i)
    facts.push_back({keys[i], values[i], i == 0 ? draws.depth() : draws.uniform("place", i)});
  return facts;
}

/// Weaves the facts into the text; the facts of the key `asked` are the evidence.
SpannedText hide(std::string_view filler, const std::vector<Fact>& facts, const std::string& asked,
                 Style style) {
  std::vector<Insertion> insertions;
  for (const Fact& fact : facts) {
    insertions.push_back({fact.depth, answered_text(style, fact.key, fact.value),
                          fact.key == asked ? Role::evidence : Role::context});
  }
  SpannedText prompt;
  weave(prompt, filler, insertions);
  return prompt;
}

/// A task of `turns` questions: for the key of the first fact, of the second, ... In a `conversation` each
/// follows the earlier questions with their answers.
Task ask_for_keys(const TaskOptions& options, const Draws& draws, std::uint64_t facts, std::uint64_t turns,
                  bool conversation = false) {
  Task task;
  const std::vector<Fact> hidden = draw_facts(facts, draws);
  for (std::uint64_t turn = 0; turn < turns; ++turn)
    task.turns.push_back({Expect::first, {" " + hidden[turn].value}});
  task.compose = [hidden, conversation, style = options.style, filler = FillerText(*options.passages, draws)](
                     std::uint64_t size, std::uint64_t turn) mutable {
    const std::string& key = hidden[turn].key;
    SpannedText prompt = hide(filler.first(size), hidden, key, style);
    std::string asked;
    for (std::uint64_t i = 0; conversation && i < turn; ++i)
      asked += answered_text(style, hidden[i].key, hidden[i].value);
    prompt.add(asked + question_text(style, key), Role::question);
    return prompt;
  };
  return task;
}

}  // namespace

Task needle_task(const TaskOptions& options, const Draws& draws) {
  return ask_for_keys(options, draws, 1, 1);
}

Task needle_multi_key_task(const TaskOptions& options, const Draws& draws) {
  return ask_for_keys(options, draws, options.facts, 1);
}

Task turns_task(const TaskOptions& options, const Draws& draws) {
  return ask_for_keys(options, draws, options.facts, options.facts);
}

Task conversation_task(const TaskOptions& options, const Draws& draws) {
  return ask_for_keys(options, draws, options.facts, options.facts, true);
}

Task needle_multi_value_task(const TaskOptions& options, const Draws& draws) {
  std::vector<Fact> hidden = draw_facts(options.facts, draws);
  const bool pairs = options.style == Style::pairs;
  Answers answers{pairs ? Expect::any : Expect::all, {}};
  for (Fact& fact : hidden) {
    fact.key = hidden.front().key;
    answers.texts.push_back(" " + fact.value);
  }
  const std::string key = hidden.front().key;
  const std::string question = pairs ? question_text(Style::pairs, key)
                                     : "\n\nWhich codes does " + key + " have? The codes of " + key + " are";
  Task task;
  task.turns.push_back(std::move(answers));
  task.compose = [hidden, key, question, style = options.style,
                  filler = FillerText(*options.passages, draws)](std::uint64_t size, std::uint64_t) mutable {
    SpannedText prompt = hide(filler.first(size), hidden, key, style);
    prompt.add(question, Role::question);
    return prompt;
  };
  return task;
}

}  // namespace kvsim::workload
