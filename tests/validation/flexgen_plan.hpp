#pragma once
/// FlexGen's own cost model (Sheng et al. 2023): its schedule over a device, host memory and a disk, with the
/// rates that its authors fitted. kvsim prices offloading by sim/cost/device_pass.hpp; this is what that is
/// held against.
#include <cstdint>

#include "sim/cost/model.hpp"

namespace kvsim::cost {

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

}  // namespace kvsim::cost
