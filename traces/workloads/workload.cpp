#include "traces/workloads/workload.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::workload {
namespace {

/// Number of sizes that are tried beyond the largest fitting one, because joining two pieces may save a
/// token.
constexpr std::uint64_t kLookAhead = 4;

/// Finds the largest size at which every turn of a task fits.
class Fit {
 public:
  Fit(const Task& task, std::uint64_t limit, const TokenCount& count_tokens)
      : task_(task), limit_(limit), count_tokens_(count_tokens) {}

  /// Throws Error(usage) when even the smallest size does not fit.
  std::uint64_t largest(const char* kind) const {
    check_least(kind);
    std::uint64_t size = largest_of_turn(0);
    // Questions differ by a few tokens at most.
    for (std::uint64_t turn = 1; turn < task_.turns.size(); ++turn)
      while (size > task_.least && !fits(size, turn)) --size;
    return size;
  }

 private:
  std::uint64_t tokens(std::uint64_t size, std::uint64_t turn) const {
    return count_tokens_(task_.compose(size, turn));
  }
  bool fits(std::uint64_t size, std::uint64_t turn) const { return tokens(size, turn) <= limit_; }

  void check_least(const char* kind) const {
    std::uint64_t least = 0;
    for (std::uint64_t turn = 0; turn < task_.turns.size(); ++turn)
      least = std::max(least, tokens(task_.least, turn));
    if (least <= limit_) return;
    usage_error(std::to_string(limit_) + " tokens cannot hold a prompt of kind " + kind, "--context",
                "At least " + std::to_string(least) + " for this tokenizer and these options.");
  }

  std::uint64_t largest_of_turn(std::uint64_t turn) const {
    std::uint64_t fitting = task_.least, exceeding = 2 * fitting;
    for (; fits(exceeding, turn); exceeding *= 2) fitting = exceeding;
    while (exceeding - fitting > 1) {
      const std::uint64_t middle = fitting + (exceeding - fitting) / 2;
      (fits(middle, turn) ? fitting : exceeding) = middle;
    }
    const std::uint64_t last = fitting + kLookAhead;
    for (std::uint64_t size = fitting + 1; size <= last; ++size)
      if (fits(size, turn)) fitting = size;
    return fitting;
  }

  const Task& task_;
  std::uint64_t limit_;
  const TokenCount& count_tokens_;
};

void check_options(const WorkloadOptions& options) {
  if (options.context_tokens > kMaxContextTokens) {
    usage_error(std::to_string(options.context_tokens) + " tokens are more than a prompt may have",
                "--context", "At most " + std::to_string(kMaxContextTokens) + ".");
  }
  if (options.count == 0) usage_error("must be at least 1", "--count");
  if (options.task.facts == 0 || options.task.facts > kMaxFacts)
    usage_error("must be from 1 to " + std::to_string(kMaxFacts), "--facts");
  if (options.task.examples > kMaxExamples)
    usage_error("must be from 0 to " + std::to_string(kMaxExamples), "--examples");
  if (options.task.hops > kMaxHops) usage_error("must be from 0 to " + std::to_string(kMaxHops), "--hops");
}

std::string base_id(const Kind& kind, const WorkloadOptions& options) {
  return std::string(kind.name) + "-" + std::to_string(options.context_tokens) + "-s" +
         std::to_string(options.seed) + "-";
}

PromptItem make_item(const Task& task, std::uint64_t size, std::uint64_t turn,
                     const TokenCount& count_tokens) {
  SpannedText text = task.compose(size, turn);
  const Answers& answers = task.turns[turn];
  PromptItem item;
  item.turn = turn;
  item.turns = task.turns.size();
  item.prompt = text.text();
  item.spans = text.spans();
  item.documents = text.documents();
  item.expect = answers.expect;
  item.answers = answers.texts;
  item.answer_prefix = item.prompt.size() - text.answer_begin();
  item.tokens = count_tokens(text);
  for (const std::string& answer : answers.texts) text.add(answer, Role::question);
  item.answer_tokens = count_tokens(text) - item.tokens;
  return item;
}

}  // namespace

void make_workload(const Kind& kind, const WorkloadOptions& options, const TokenCount& count_tokens,
                   const std::function<void(const PromptItem&)>& emit) {
  check_options(options);
  const std::string id = base_id(kind, options);
  std::uint64_t made = 0;
  for (std::uint64_t context = 0; made < options.count; ++context) {
    const Task task = make_task(kind, options.task, Draws(options.seed, kind.name, context));
    const std::uint64_t size = Fit(task, options.context_tokens, count_tokens).largest(kind.name);
    for (std::uint64_t turn = 0; turn < task.turns.size() && made < options.count; ++turn, ++made) {
      PromptItem item = make_item(task, size, turn, count_tokens);
      item.id = id + std::to_string(made);
      item.context_id = id + "c" + std::to_string(context);
      item.kind = kind.name;
      item.seed = options.seed;
      item.context_tokens = options.context_tokens;
      emit(item);
    }
  }
}

}  // namespace kvsim::workload
