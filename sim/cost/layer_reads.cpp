#include "sim/cost/layer_reads.hpp"

#include <cmath>

namespace kvsim::cost {

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
