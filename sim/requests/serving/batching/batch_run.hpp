#pragma once
/// Batches that run one after the other: the prompts of each in one pass, then steps of one token for each
/// sequence until the longest answer has ended.
#include <cstdint>
#include <optional>
#include <span>

#include "sim/requests/serving/batching/batch_plan.hpp"
#include "sim/requests/serving/engine.hpp"

namespace kvsim::serving {

/// What decode steps read of keys and values, sums over all of them, of one layer.
struct DecodeReads {
  std::uint64_t tokens = 0;         ///< that are read, of a layer without a window
  std::uint64_t within_window = 0;  ///< of one with the window
  std::uint64_t partials = 0;       ///< written and read again (shared_reads.hpp)
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

}  // namespace kvsim::serving
