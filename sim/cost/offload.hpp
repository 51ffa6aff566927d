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

/// Rates for FlexGen's schedule. Loading a prefill's layer goes disk -> host -> device, storing device ->
/// host -> disk; while a step computes, copies device -> host, disk -> host and host -> disk run at the same
/// time. The host computes attention over the part of the cache that is not on the device.
struct OffloadRates {
  double host_to_device = 0, device_to_host = 0;                 ///< bytes/s; of weights and activations
  double cache_to_host = 0;                                      ///< bytes/s; of the prompt's cache
  double disk_read = 0, disk_write = 0;                          ///< bytes/s
  double prompt_to_disk = 0;                                     ///< bytes/s; of the prompt's cache
  double prefill_rate = 0, decode_rate = 0;                      ///< FLOP/s of matrix products
  double prefill_attention_rate = 0, decode_attention_rate = 0;  ///< FLOP/s of batched products
  double host_rate = 0;                                          ///< FLOP/s of attention on the host
};
/// Returns the rates that FlexGen's authors fitted to runs on a Google Cloud T4; the host is slower per
/// operation when the device takes fewer than 64 sequences at once.
OffloadRates flexgen_t4_rates(std::uint64_t device_batch);

struct OffloadPlan {
  std::uint64_t prompt = 0, generate = 0, batch = 0;
  std::uint64_t cached_tokens =
      0;  ///< per sequence and layer while decoding: prompt + generated / 2 of a full cache
  double weights_device = 1, weights_host = 0;  ///< shares; the rest is on disk
  double cache_device = 1, cache_host = 0;
  double activations_device = 1, activations_host = 0;
};
struct OffloadTime {
  double prefill = 0, decode = 0;  ///< s
  double tokens_per_second = 0;
};
/// Returns the times in 16 bits. Throws Error(usage) for zero sizes, shares outside [0, 1], and a plan that
/// uses a resource without a rate.
OffloadTime offload_time(const Model& model, const OffloadRates& rates, const OffloadPlan& plan);

/// Returns the time in which a sequence's cache leaves the device and comes back, `chunk` bytes at a time
/// (vLLM copies K and V of each layer and block separately), the last one shorter. The alternative is
/// recomputing it by a prefill. Throws Error(usage) for a chunk of zero bytes.
double swap_time(const Link& link, std::uint64_t bytes, std::uint64_t chunk);
/// Returns the time to replace one user's cache by another's.
double switch_time(const Link& link, std::uint64_t bytes_out, std::uint64_t bytes_in);

}  // namespace kvsim::cost
