#include "sim/cost/offload.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/cost/checked.hpp"

namespace kvsim::cost {

std::uint64_t share_of(std::uint64_t bytes, double share) {
  if (share == 1) return bytes;  // exact, unlike a product in floating point
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * share);
}

double transfer_time(const Link& link, std::uint64_t bytes, std::uint64_t operations) {
  if (!(link.bandwidth > 0)) usage_error("has no bandwidth: nothing can be moved over it", "link");
  return real(bytes) / link.bandwidth + real(operations) * link.latency;
}

double prefill_block(double load, double store, double compute) {
  return std::max({load, store, compute});
}

double step_block(double load, double store, double compute) {
  return load + std::max(store, compute);
}

double ahead_block(double early, double late, double store, double compute) {
  return prefill_block(early, store, compute) + late;
}

double swap_time(const Link& link, std::uint64_t bytes, std::uint64_t chunk) {
  if (chunk == 0) usage_error("is zero bytes", "chunk");
  return 2 * transfer_time(link, bytes, ceil_divided(bytes, chunk));
}

policy::ReadCount read_count(const policy::Part& selection, const Model& model, std::uint64_t layer,
                             std::uint64_t tokens) {
  const policy::CostShape shape{.n_layers = model.cached_layers(),
                                .query_heads = model.query_heads,
                                .kv_heads = model.kv_heads,
                                .head_dim = model.head_dim,
                                .value_dim = model.value_dim,
                                .hidden = model.hidden,
                                .prompt = tokens,
                                .budget = tokens};
  return selection.reads(shape, layer, tokens);
}

LayerReads layer_reads(const std::optional<policy::Part>& selection, const Model& model, std::uint64_t layer,
                       double tokens) {
  const auto stored = static_cast<std::uint64_t>(std::llround(tokens));
  if (!selection || stored == 0) return {};
  const policy::ReadCount count = read_count(*selection, model, layer, stored);
  const auto all = static_cast<double>(stored);
  return {count.head_tokens / all, count.lane_tokens / all, count.index_bytes_read, count.index_bytes,
          count.lane_tokens < all ? count.run_tokens : 0};
}

}  // namespace kvsim::cost
