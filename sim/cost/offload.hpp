#pragma once
/// Costs of moving weights and cache that are stored in host memory or on disk.
#include <cstdint>

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

}  // namespace kvsim::cost
