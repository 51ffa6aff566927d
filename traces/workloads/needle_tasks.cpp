// Tasks with facts hidden in text: a single fact, several keys, several values of a key, several questions.
#include <algorithm>

#include "traces/workloads/filler_text.hpp"
#include "traces/workloads/task.hpp"
#include "traces/workloads/word_lists.hpp"

namespace kvsim::workload {
namespace {

using Words = std::vector<std::string>;

/// "a", "a, and b", "a, b, and c": as RULER joins the keys that it asks for.
std::string listed(const Words& keys) {
  std::string text = keys.front();
  for (std::size_t i = 1; i < keys.size(); ++i) text += (i + 1 == keys.size() ? ", and " : ", ") + keys[i];
  return text;
}

std::string fact_text(Style style, const std::string& key, const std::string& value) {
  switch (style) {
    case Style::pairs:
      return " << " + key + " " + value + " >>";
    case Style::sentences:
      return " The code of " + key + " is " + value + ".";
    case Style::ruler:
      return " One of the special magic numbers for " + key + " is: " + value + ".";
  }
  return {};
}

/// A question, and the words with which its answer begins.
struct Asked {
  std::string question, prefix;
};

/// Asks for the values of `keys`, of which there are `several` or one.
Asked ask(Style style, const Words& keys, bool several) {
  if (style == Style::pairs) return {"", " << " + listed(keys)};
  const std::string of = listed(keys);
  if (style == Style::sentences && !several) return {"", " The code of " + of + " is"};
  if (style == Style::sentences)
    return {"\n\nWhich codes does " + of + " have?", " The codes of " + of + " are"};
  const std::string what = std::string("special magic number") + (several ? "s" : "") + " for " + of +
                           " mentioned in the provided text";
  return {(several ? "\nWhat are all the " : "\nWhat is the ") + what + "?",
          " The " + what + (several ? " are" : " is")};
}

std::string instruction(Style style, bool several) {
  if (style != Style::ruler) return {};
  const std::string number = several ? "numbers" : "number";
  return (several ? "Some special magic numbers are" : "A special magic number is") +
         std::string(
             " hidden within the following text. Make sure to memorize it. I will quiz you about the ") +
         number + " afterwards.\n";
}

struct Fact {
  std::string key, value;
  double depth;
};

/// Draws facts with different keys and values; RULER's values are any numbers of seven digits. The first fact
/// is placed at the depth of the prompt's answer, the others at random depths.
std::vector<Fact> draw_facts(std::uint64_t n, Style style, const Draws& draws) {
  const Words keys = draws.sample(key_words(), n, "keys");
  const Words values = draws.sample(value_words(), n, "values");
  std::vector<Fact> facts;
  for (std::uint64_t i = 0; i < n; ++i)
    facts.push_back(
        {keys[i],
         style == Style::ruler ? std::to_string(1'000'000 + draws.below(9'000'000, "number", i)) : values[i],
         i == 0 ? draws.depth() : draws.uniform("place", i)});
  return facts;
}

/// Facts in text, and what is asked about them.
struct Hidden {
  Style style;
  std::vector<Fact> facts;
  FillerText filler;

  /// The facts of the keys `asked` are the evidence; `earlier` is what was said before the question.
  SpannedText prompt(std::uint64_t size, const Words& asked, bool several, const std::string& earlier = {}) {
    std::vector<Insertion> insertions;
    for (const Fact& fact : facts) {
      const bool evidence = std::find(asked.begin(), asked.end(), fact.key) != asked.end();
      insertions.push_back(
          {fact.depth, fact_text(style, fact.key, fact.value), evidence ? Role::evidence : Role::context});
    }
    const Asked question = ask(style, asked, several);
    SpannedText prompt;
    prompt.add(instruction(style, several), Role::question);
    weave(prompt, filler.first(size), insertions);
    prompt.add(earlier + question.question, Role::question).begin_answer(question.prefix);
    return prompt;
  }
};

Expect one_value(Style style) {
  return style == Style::ruler ? Expect::holds_all : Expect::first;
}

/// A task of `turns` questions: for the key of the first fact, of the second, ... In a `conversation` each
/// follows the earlier questions with their answers.
Task ask_for_keys(const TaskOptions& options, const Draws& draws, std::uint64_t facts, std::uint64_t turns,
                  bool conversation = false) {
  Task task;
  Hidden hidden{options.style, draw_facts(facts, options.style, draws), FillerText(*options.passages, draws)};
  for (std::uint64_t turn = 0; turn < turns; ++turn)
    task.turns.push_back({one_value(options.style), {" " + hidden.facts[turn].value}});
  task.compose = [hidden, conversation](std::uint64_t size, std::uint64_t turn) mutable {
    std::string earlier;
    for (std::uint64_t i = 0; conversation && i < turn; ++i) {
      const Asked asked = ask(hidden.style, {hidden.facts[i].key}, false);
      earlier += asked.question + asked.prefix + " " + hidden.facts[i].value +
                 (hidden.style == Style::pairs ? " >>" : ".");
    }
    return hidden.prompt(size, {hidden.facts[turn].key}, false, earlier);
  };
  return task;
}

/// A task of one question for every value of `asked`, whose keys they are.
Task ask_for_all(Hidden hidden, Words asked) {
  Answers answers{Expect::all, {}};
  if (hidden.style == Style::pairs) answers.expect = Expect::any;
  if (hidden.style == Style::ruler) answers.expect = Expect::holds_all;
  for (const Fact& fact : hidden.facts) answers.texts.push_back(" " + fact.value);
  Task task;
  task.turns.push_back(std::move(answers));
  task.compose = [hidden, asked](std::uint64_t size, std::uint64_t) mutable {
    return hidden.prompt(size, asked, hidden.style == Style::sentences || hidden.facts.size() > 1);
  };
  return task;
}

/// Asks for the facts of the chosen documents that `asked` numbers, ascending.
Task ask_documents(const TaskOptions& options, Style style, const Draws& draws,
                   const std::vector<std::uint64_t>& asked) {
  // A prompt has so many of twice as many documents. They grow one after the other, by whole steps but for
  // one, so that most are the same text in prompts of nearly the same size.
  constexpr std::uint64_t kStep = 32;
  const std::uint64_t n = options.facts, all = std::min<std::uint64_t>(2 * n, key_words().size());
  const std::vector<Fact> facts = draw_facts(all, style, draws.shared(0));
  std::vector<std::uint64_t> chosen = draws.order(all, "documents");
  chosen.resize(n);
  std::vector<std::uint64_t> growing = chosen;
  std::ranges::sort(growing);
  std::vector<FillerText> texts;
  for (const std::uint64_t number : chosen) texts.emplace_back(*options.passages, draws.shared(number + 1));
  Words keys;
  Answers answers{one_value(style), {}};
  for (const std::uint64_t number : asked) {
    keys.push_back(facts[chosen[number]].key);
    answers.texts.push_back(" " + facts[chosen[number]].value);
  }
  const bool several = asked.size() > 1;
  Task task;
  task.least = n;
  task.turns.push_back(std::move(answers));
  task.compose = [=](std::uint64_t size, std::uint64_t) mutable {
    SpannedText prompt;
    prompt.add(instruction(style, several), Role::question);
    const std::uint64_t steps = (size - n) / kStep, first = steps % n;
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto turn = static_cast<std::uint64_t>(std::ranges::find(growing, chosen[i]) - growing.begin());
      const std::uint64_t own = (steps / n + (turn < first ? 1 : 0)) * kStep;
      const Fact& fact = facts[chosen[i]];
      const std::uint64_t begin = prompt.text().size();
      weave(prompt, texts[i].first(1 + own + (turn == first ? (size - n) % kStep : 0)),
            {{fact.depth, fact_text(style, fact.key, fact.value),
              std::ranges::binary_search(asked, i) ? Role::evidence : Role::context}});
      prompt.add("\n\n", Role::context).end_document(begin);
    }
    const Asked question = ask(style, keys, several);
    prompt.add(question.question, Role::question).begin_answer(question.prefix);
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

Task documents_task(const TaskOptions& options, const Draws& draws) {
  return ask_documents(options, options.style, draws, {draws.below(options.facts, "asked")});
}

Task documents_two_task(const TaskOptions& options, const Draws& draws) {
  std::vector<std::uint64_t> asked = draws.order(options.facts, "asked");
  asked.resize(std::min<std::uint64_t>(2, options.facts));
  std::ranges::sort(asked);
  return ask_documents(options, Style::ruler, draws, asked);
}

Task needle_multi_value_task(const TaskOptions& options, const Draws& draws) {
  Hidden hidden{options.style, draw_facts(options.facts, options.style, draws),
                FillerText(*options.passages, draws)};
  const std::string key = hidden.facts.front().key;
  for (Fact& fact : hidden.facts) fact.key = key;
  return ask_for_all(std::move(hidden), {key});
}

Task needle_multi_query_task(const TaskOptions& options, const Draws& draws) {
  Hidden hidden{Style::ruler, draw_facts(options.facts, Style::ruler, draws),
                FillerText(*options.passages, draws)};
  Words keys;
  for (const Fact& fact : hidden.facts) keys.push_back(fact.key);
  return ask_for_all(std::move(hidden), keys);
}

}  // namespace kvsim::workload
