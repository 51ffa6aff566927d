#pragma once
/// A task before it is fitted to a length, and the kinds of tasks.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "traces/workloads/draws.hpp"
#include "traces/workloads/passages.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::workload {

/// The style in which facts are written and asked for.
enum class Style {
  pairs,      ///< " << apple river >>", " << apple"
  sentences,  ///< " The code of apple is river.", " The code of apple is"
  ruler,      ///< RULER's: " One of the special magic numbers for apple is: 1234567.", asked for in words
};
/// "pairs", "sentences", "ruler". Throws Error(usage) at `where` for any other name.
Style style_of_name(const std::string& name, const std::string& where);

/// The options of a task.
struct TaskOptions {
  std::uint64_t facts = 4;  ///< number of facts, values of a key or questions, 1 ... kMaxFacts
  std::uint64_t hops = 1;   ///< copies between the variable that is set and the one asked for, 0 ... kMaxHops
  std::uint64_t examples = 0;  ///< short tasks of the kind, with their answers, before the prompt
  Style style = Style::pairs;
  const std::vector<Passage>* passages = nullptr;  ///< not null when a task is made
};
constexpr std::uint64_t kMaxFacts = 128, kMaxHops = 8;

struct Answers {
  Expect expect = Expect::nothing;
  std::vector<std::string> texts;
};

struct Task {
  std::vector<Answers> turns;  ///< one per question about the same context; at least one
  std::uint64_t least = 1;     ///< smallest size that makes sense
  /// The prompt of a turn. `size` counts the units of the context (cuts of text, words of a list); the
  /// context depends only on it.
  std::function<SpannedText(std::uint64_t size, std::uint64_t turn)> compose;
};

/// The options that affect a kind.
enum KindOption : unsigned { kUsesFacts = 1, kUsesHops = 2, kUsesStyle = 4, kUsesText = 8 };

struct Kind {
  const char* name;
  const char* summary;
  unsigned uses;  ///< KindOption bits
  Task (*make)(const TaskOptions& options, const Draws& draws);
};

/// The task of a prompt, `options.examples` examples before it. Throws Error(usage) for examples of a kind
/// without answers.
Task make_task(const Kind& kind, const TaskOptions& options, const Draws& draws);

/// All kinds, in the order in which users see them.
std::span<const Kind> kinds();
/// Throws Error(usage) naming the most similar kinds.
const Kind& kind_named(const std::string& name);

// needle_tasks.cpp, passkey_task.cpp, variables_task.cpp, word_count_tasks.cpp, copy_task.cpp,
// question_tasks.cpp
Task needle_task(const TaskOptions& options, const Draws& draws);
Task needle_multi_key_task(const TaskOptions& options, const Draws& draws);
Task needle_multi_value_task(const TaskOptions& options, const Draws& draws);
Task needle_multi_query_task(const TaskOptions& options, const Draws& draws);
Task documents_task(const TaskOptions& options, const Draws& draws);
Task documents_two_task(const TaskOptions& options, const Draws& draws);
Task turns_task(const TaskOptions& options, const Draws& draws);
Task conversation_task(const TaskOptions& options, const Draws& draws);
Task passkey_task(const TaskOptions& options, const Draws& draws);
Task variables_task(const TaskOptions& options, const Draws& draws);
Task common_words_task(const TaskOptions& options, const Draws& draws);
Task frequent_words_task(const TaskOptions& options, const Draws& draws);
Task copy_task(const TaskOptions& options, const Draws& draws);
Task passage_question_task(const TaskOptions& options, const Draws& draws);
Task summary_task(const TaskOptions& options, const Draws& draws);
Task continuation_task(const TaskOptions& options, const Draws& draws);
Task list_task(const TaskOptions& options, const Draws& draws);
Task explanation_task(const TaskOptions& options, const Draws& draws);
Task text_task(const TaskOptions& options, const Draws& draws);

}  // namespace kvsim::workload
