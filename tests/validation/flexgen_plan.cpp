#include "tests/validation/flexgen_plan.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/cost/offload.hpp"

namespace kvsim::cost {
namespace {

constexpr double kElementBytes = 2;

/// Returns the seconds for `amount`; an amount of 0 takes no time, whatever the rate.
double at_rate(double amount, double rate, const char* what) {
  if (amount == 0) return 0;
  if (!(rate > 0)) usage_error("the plan needs a rate above zero", what);
  return amount / rate;
}

/// Returns the share that the plan leaves on disk.
double disk_share(double device, double host, const char* what) {
  if (!(device >= 0 && host >= 0 && device + host <= 1 + 1e-12))
    usage_error("shares are between 0 and 1, and their sum is at most 1", what);
  const double disk = 1 - device - host;
  return disk < 1e-12 ? 0 : disk;  // 0.2 + 0.8 need not be 1
}

/// Bytes and operations of one layer and the whole batch, and where they are.
struct Block {
  double weights, token_hidden, token_cache;  ///< bytes; for one token of every sequence
  double token_flops, pair_flops;             ///< for the products of one token; for attention to one token
  double weights_disk, cache_disk, hidden_disk;
};

Block block_of(const Model& model, const OffloadPlan& plan) {
  const double batch = real(plan.batch), parameters = real(model.block_matrix_parameters());
  const double width = real(model.head_dim) + real(model.value_dim);
  return {.weights = kElementBytes * parameters,
          .token_hidden = kElementBytes * batch * real(model.hidden),
          .token_cache = kElementBytes * batch * real(model.kv_heads) * width,
          .token_flops = 2 * batch * parameters,
          .pair_flops = 2 * batch * real(model.query_heads) * width,
          .weights_disk = disk_share(plan.weights_device, plan.weights_host, "weights"),
          .cache_disk = disk_share(plan.cache_device, plan.cache_host, "cache"),
          .hidden_disk = disk_share(plan.activations_device, plan.activations_host, "activations")};
}

double prefill_layer(const Block& block, const OffloadRates& rates, const OffloadPlan& plan) {
  const double prompt = real(plan.prompt);
  const double hidden = prompt * block.token_hidden;
  const double cache = real(std::min(plan.prompt, plan.cached_tokens)) * block.token_cache;
  const double off_weights = 1 - plan.weights_device, off_hidden = 1 - plan.activations_device;
  const double load =
      at_rate(block.weights * off_weights + hidden * off_hidden, rates.host_to_device, "host to device") +
      at_rate(block.weights * block.weights_disk + hidden * block.hidden_disk, rates.disk_read, "disk read");
  const double store = at_rate(cache * (1 - plan.cache_device), rates.cache_to_host, "cache to host") +
                       at_rate(hidden * off_hidden, rates.device_to_host, "device to host") +
                       at_rate(cache * block.cache_disk, rates.prompt_to_disk, "prompt's cache to disk") +
                       at_rate(hidden * block.hidden_disk, rates.disk_write, "disk write");
  const double compute =
      at_rate(prompt * block.token_flops, rates.prefill_rate, "prefill") +
      at_rate(prompt * prompt * block.pair_flops, rates.prefill_attention_rate, "attention of the prefill");
  return prefill_block(load, store, compute);
}

double step_layer(const Block& block, const OffloadRates& rates, const OffloadPlan& plan) {
  const double hidden = block.token_hidden, cached = real(plan.cached_tokens);
  const double off_hidden = 1 - plan.activations_device;
  const double load = at_rate(block.weights * (1 - plan.weights_device) + hidden * off_hidden,
                              rates.host_to_device, "host to device");
  const double to_host = at_rate(hidden * off_hidden, rates.device_to_host, "device to host");
  const double from_disk = at_rate(cached * block.token_cache * block.cache_disk +
                                       hidden * block.hidden_disk + block.weights * block.weights_disk,
                                   rates.disk_read, "disk read");
  const double to_disk = at_rate(block.token_cache * block.cache_disk + hidden * block.hidden_disk,
                                 rates.disk_write, "disk write");
  const double attention = cached * block.pair_flops;
  const double compute =
      at_rate(block.token_flops, rates.decode_rate, "decode") +
      at_rate(attention * plan.cache_device, rates.decode_attention_rate, "attention of decode steps") +
      at_rate(attention * (1 - plan.cache_device), rates.host_rate, "host");
  return step_block(load, std::max({to_host, from_disk, to_disk}), compute);
}

}  // namespace

OffloadRates flexgen_t4_rates(std::uint64_t device_batch) {
  if (device_batch == 0) usage_error("is zero", "device batch");
  const double halvings = std::max(0.0, std::log2(64 / real(device_batch)));
  return {.host_to_device = 12.89 * kGib,
          .device_to_host = 4.82 * kGib,
          .cache_to_host = 0.97 * kGib,
          .disk_read = 0.473 * kGib,
          .disk_write = 2.015 * kGib,
          .prompt_to_disk = 0.746 * kGib,
          .prefill_rate = 21.24e12,
          .decode_rate = 4.3e12,
          .prefill_attention_rate = 9.97e12,
          .decode_attention_rate = 0.079e12,
          .host_rate = 0.0123e12 * std::max(0.1, 1 - 0.0328 * halvings)};
}

OffloadTime offload_time(const Model& model, const OffloadRates& rates, const OffloadPlan& plan) {
  for (const auto& [size, what] : {std::pair{plan.prompt, "prompt"}, std::pair{plan.generate, "generate"},
                                   std::pair{plan.batch, "batch"}})
    if (size == 0) usage_error("is zero", what);
  require_plain_layers(model, "an offloading plan");
  const Block block = block_of(model, plan);
  const double layers = real(model.layers);
  OffloadTime time;
  time.prefill = layers * prefill_layer(block, rates, plan);
  time.decode = layers * real(plan.generate - 1) * step_layer(block, rates, plan);
  time.tokens_per_second = real(plan.batch) * real(plan.generate) / (time.prefill + time.decode);
  return time;
}

}  // namespace kvsim::cost
