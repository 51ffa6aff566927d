#pragma once
/// Weights and cache that live in host memory or on disk: what moving them costs.
#include <cstdint>

#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"

namespace kvsim::cost {

/// A share between 0 and 1 of some bytes, rounded down.
std::uint64_t share_of(std::uint64_t bytes, double share);

/// bytes / bandwidth + operations * latency. Throws Error(usage) for a link without bandwidth.
double transfer_time(const Link& link, std::uint64_t bytes, std::uint64_t operations);

// FlexGen's block schedule (Sheng et al. 2023, cost model), seconds of one layer.

/// What can overlap does: a prefill takes the longest of what is loaded, what is stored, and compute.
double prefill_block(double load, double store, double compute);
/// A decode step loads, then computes while it stores.
double step_block(double load, double store, double compute);

/// Rates of that schedule. Loading a prefill's layer goes disk -> host -> device, storing device -> host ->
/// disk; while a step computes it moves device -> host, disk -> host and host -> disk, all at once. Attention
/// over the part of the cache that is off the device is the host's.
struct OffloadRates {
  double host_to_device = 0, device_to_host = 0;                 ///< bytes/s; of weights and activations
  double cache_to_host = 0;                                      ///< bytes/s; of the prompt's cache
  double disk_read = 0, disk_write = 0;                          ///< bytes/s
  double prompt_to_disk = 0;                                     ///< bytes/s; of the prompt's cache
  double prefill_rate = 0, decode_rate = 0;                      ///< FLOP/s of matrix products
  double prefill_attention_rate = 0, decode_attention_rate = 0;  ///< FLOP/s of batched products
  double host_rate = 0;                                          ///< FLOP/s of attention on the host
};
/// What FlexGen's authors fitted to runs on a Google Cloud T4; the host is slower per operation when the
/// device takes fewer than 64 sequences at once.
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
/// In 16 bits. Throws Error(usage) for zero sizes, shares that are none, and a plan that uses something
/// without a rate.
OffloadTime offload_time(const Model& model, const OffloadRates& rates, const OffloadPlan& plan);

/// A sequence's cache leaves the device and comes back, `chunk` bytes at a time (vLLM copies K and V of each
/// layer and block on their own), the last one shorter: what recomputing it by a prefill is compared with.
/// Throws Error(usage) for a chunk of zero bytes.
double swap_time(const Link& link, std::uint64_t bytes, std::uint64_t chunk);
/// One user's cache goes, another's comes.
double switch_time(const Link& link, std::uint64_t bytes_out, std::uint64_t bytes_in);

}  // namespace kvsim::cost
