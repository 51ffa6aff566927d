#include <algorithm>
#include <array>

#include "sim/base/enum_names.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"
#include "traces/workloads/task.hpp"

namespace kvsim::workload {
namespace {

constexpr std::array kKinds{
    Kind{"needle", "one fact in text, asked for", kUsesStyle | kUsesText, needle_task},
    Kind{"needle-multi-key", "several facts in text, one asked for", kUsesFacts | kUsesStyle | kUsesText,
         needle_multi_key_task},
    Kind{"needle-multi-value", "several values of one key", kUsesFacts | kUsesStyle | kUsesText,
         needle_multi_value_task},
    Kind{"needle-multi-query", "several facts in RULER's words, all asked for", kUsesFacts | kUsesText,
         needle_multi_query_task},
    Kind{"documents", "texts with a fact each, some in several prompts, in other orders; one asked for",
         kUsesFacts | kUsesStyle | kUsesText, documents_task},
    Kind{"documents-two", "the same in RULER's words; two asked for", kUsesFacts | kUsesText,
         documents_two_task},
    Kind{"passkey", "a number in sentences that come again and again", 0, passkey_task},
    Kind{"variables", "a variable that copies another, followed to its value", kUsesHops | kUsesText,
         variables_task},
    Kind{"common-words", "the words a list holds ten times as often as others", 0, common_words_task},
    Kind{"frequent-words", "the three most frequent words of a list that follows Zipf's law", 0,
         frequent_words_task},
    Kind{"copy", "a list of words that begins again, to be continued", kUsesText, copy_task},
    Kind{"turns", "several questions about the facts of one context, a prompt each",
         kUsesFacts | kUsesStyle | kUsesText, turns_task},
    Kind{"conversation", "the same, each after the earlier ones and their answers",
         kUsesFacts | kUsesStyle | kUsesText, conversation_task},
    Kind{"passage-question", "a question that a paragraph of the text answers", kUsesText,
         passage_question_task},
    Kind{"summary", "text to be summarized: a long answer, judged beside the full cache's", kUsesText,
         summary_task},
    Kind{"continuation", "the same, to be continued", kUsesText, continuation_task},
    Kind{"list", "the same, of which points are to be listed", kUsesText, list_task},
    Kind{"explanation", "the same, to be explained", kUsesText, explanation_task},
    Kind{"text", "plain text, nothing asked", kUsesText, text_task},
};

}  // namespace

Style style_of_name(const std::string& name, const std::string& where) {
  static constexpr const char* kNames[] = {"pairs", "sentences", "ruler"};
  return parse_named<Style>(kNames, name, "style", where);
}

Task make_task(const Kind& kind, const TaskOptions& options, const Draws& draws) {
  constexpr std::uint64_t kSize = 48;  // of an example: a few sentences, or a short list
  Task task = kind.make(options, draws);
  if (options.examples > 0 && task.turns.front().expect == Expect::nothing)
    usage_error(std::string("means nothing to the kind ") + kind.name, "--examples");
  std::string shown;
  for (std::uint64_t i = 0; i < options.examples; ++i) {
    const Task example = kind.make(options, draws.example(i));
    shown += example.compose(std::max(example.least, kSize), 0).text();
    const Answers& answers = example.turns.front();
    const bool one = answers.expect == Expect::first || answers.expect == Expect::any;
    for (std::size_t k = 0; k < (one ? 1 : answers.texts.size()); ++k) shown += answers.texts[k];
    shown += "\n\n";
  }
  if (shown.empty()) return task;
  task.compose = [shown, of = std::move(task.compose)](std::uint64_t size, std::uint64_t turn) {
    return of(size, turn).behind(shown, Role::question);
  };
  return task;
}

std::span<const Kind> kinds() {
  return kKinds;
}

const Kind& kind_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind;
    names.push_back(kind.name);
  }
  usage_error("unknown kind of workload \"" + name + "\"", "KIND", suggestion(name, names));
}

}  // namespace kvsim::workload
