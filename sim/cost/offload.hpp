#pragma once
/// What a step reads of a layer's cache, and what it costs to move weights and cache from host memory or
/// disk.
#include <cstdint>
#include <optional>

#include "policies/api/spec.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"

namespace kvsim::cost {

/// Returns a share between 0 and 1 of `bytes`, rounded down.
std::uint64_t share_of(std::uint64_t bytes, double share);

/// Returns bytes / bandwidth + operations * latency. Throws Error(usage) for a link without bandwidth.
double transfer_time(const Link& link, std::uint64_t bytes, std::uint64_t operations);

// FlexGen's block schedule (Sheng et al. 2023, cost model), in seconds of one layer.

/// A prefill overlaps all three: it takes the longest of load, store and compute.
double prefill_block(double load, double store, double compute);
/// A decode step loads, then computes while it stores.
double step_block(double load, double store, double compute);

/// A decode step whose copies begin one layer ahead: what is known by then (`early`) is loaded while the
/// layer before computes and stores, the rest (`late`) when the layer has chosen. Within a group the longest
/// counts, groups add up: {early, store, compute}, {late}. With nothing late it is prefill_block().
double ahead_block(double early, double late, double store, double compute);

/// Returns the time in which a sequence's cache leaves the device and comes back, `chunk` bytes at a time
/// (vLLM copies K and V of each layer and block separately), the last one shorter. The alternative is
/// recomputing it by a prefill. Throws Error(usage) for a chunk of zero bytes.
double swap_time(const Link& link, std::uint64_t bytes, std::uint64_t chunk);

/// What a step reads of a layer's cache where a selection chooses, by the selection's own statement.
struct LayerReads {
  double head_share = 1;  ///< of the tokens that a lane holds, those that one query head reads
  /// The same of the query heads of a KV head together, at most: where they agree it is less.
  double lane_share = 1;
  double index_bytes_read = 0, index_bytes = 0;  ///< of the index, in all KV heads of the layer
  double run_tokens = 0;  ///< that stand beside each other in what a lane reads; 0: all that it holds
};

/// What the selection states of a layer whose lanes hold `tokens` each, at least one.
policy::ReadCount read_count(const policy::Part& selection, const Model& model, std::uint64_t layer,
                             std::uint64_t tokens);
/// `tokens`: that a lane of the layer holds, mean. Without a selection everything is read.
LayerReads layer_reads(const std::optional<policy::Part>& selection, const Model& model, std::uint64_t layer,
                       double tokens);

}  // namespace kvsim::cost
