#pragma once
/// Batches that run one after the other: the prompts of each in one pass, then steps of one token for each
/// sequence until the longest answer has ended.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/requests/prefix/prefix_tree.hpp"
#include "sim/requests/serving/batching/batch_plan.hpp"
#include "sim/requests/serving/engine.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

/// What decode steps read of keys and values, sums over all of them, of one layer.
struct DecodeReads {
  std::uint64_t tokens = 0;         ///< that are read, of a layer without a window
  std::uint64_t within_window = 0;  ///< of one with the window
  std::uint64_t partials = 0;       ///< written and read again, where reads are shared
  double seconds = 0;               ///< of the steps
};

struct BatchSummary {
  std::uint64_t requests = 0, batches = 0, rows = 0;
  std::uint64_t prompt_tokens = 0, generated_tokens = 0;
  std::uint64_t computed_tokens = 0;  ///< in rows of passes over prompts
  std::uint64_t padding_tokens = 0;   ///< of these, what belongs to no prompt
  std::uint64_t found_tokens = 0;     ///< of prompts, not computed because they were there
  double prompt_seconds = 0;
  std::uint64_t steps = 0;              ///< of one token each
  DecodeReads separate{};               ///< every sequence reads its own tokens
  std::optional<DecodeReads> shared{};  ///< common blocks are read once; nothing: it is not known

  double seconds() const { return prompt_seconds + separate.seconds; }
};

/// Runs batches on one device group. A pass over prompts gives the first token of each request, so that g
/// generated tokens take g - 1 steps. Common blocks are those of prompts that running sequences of a batch
/// have in common, on all levels of the tree. `window`: tokens that a row attends to in layers that have a
/// window, at most; 0: none has. With a window, or without a tree, shared reads are not known.
BatchSummary run_batches(const requests::RequestTrace& trace, const prefix::PrefixTree* tree,
                         std::span<const PromptBatch> batches, std::uint64_t window, const StepPrice& price);

// Hydragen (Juravsky et al. 2024, arXiv 2402.05099): a decode step of sequences with common prefixes reads
// each common block once, for all of them together, and merges the partial results.

/// Of one layer and step.
struct SharedReads {
  std::uint64_t separate_tokens = 0;  ///< read if every sequence reads its own
  std::uint64_t shared_tokens = 0;    ///< read if common blocks are read once
  /// Partial results that are written and read: one per sequence and level of the tree on its path, where a
  /// level is a run of blocks that the same sequences have. One level alone has the result itself.
  std::uint64_t partials = 0;
  std::uint64_t levels = 0;  ///< on a path, at most

  double ratio() const { return static_cast<double>(separate_tokens) / static_cast<double>(shared_tokens); }
};

/// Counts shared reads of one set of sequences after the other.
class SharedReader {
 public:
  /// Both must outlive the object.
  SharedReader(const requests::RequestTrace& trace, const prefix::PrefixTree& tree)
      : trace_(trace), tree_(tree), readers_(tree.size(), 0) {}

  /// Of sequences that have the whole prompts of `running` and `private_tokens` tokens each behind them,
  /// which nobody shares.
  SharedReads count(std::span<const std::uint32_t> running, std::uint64_t private_tokens);

 private:
  const requests::RequestTrace& trace_;
  const prefix::PrefixTree& tree_;
  std::vector<std::uint32_t> readers_;  ///< of each block; all 0 between two sets
};

}  // namespace kvsim::serving
