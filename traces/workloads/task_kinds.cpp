#include <array>

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
    Kind{"text", "plain text, nothing asked", kUsesText, text_task},
};

}  // namespace

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
