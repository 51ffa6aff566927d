#include "policies/parts/splits/exempt_layers.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

ParamSpec layers_param(const char* name, std::size_t fallback, const char* help) {
  return count_param(name, std::to_string(fallback), {0, 1 << 20}, help, "layers");
}

}  // namespace

ExemptLayers::ExemptLayers(const Params& params, std::size_t n_layers)
    : n_layers_(n_layers),
      first_(std::min(params.count("first"), n_layers)),
      last_(std::min(params.count("last"), n_layers - first_)) {}

std::size_t ExemptLayers::left_for_others(const AllocationRequest& request) const {
  const Rooms room = rooms(request);
  const std::size_t all = room.total();
  std::size_t exempt = 0;
  for (std::size_t layer = 0; layer < n_layers_; ++layer)
    if (contains(layer)) exempt += room.of[layer].most;
  if (all < exempt || (n_others() == 0 && all > exempt)) {
    const std::size_t least = room.of[0].floor + (exempt + n_layers_ - 1) / n_layers_;
    usage_error(std::to_string(n_layers_ - n_others()) + " of " + std::to_string(n_layers_) +
                    " layers are exempt and hold the whole prompt: with a prompt of " +
                    std::to_string(request.prompt) + " that takes a budget of " + std::to_string(least) +
                    " tokens per lane, not " + std::to_string(request.budget),
                {}, "Give a larger budget, or exempt fewer layers.");
  }
  return all - exempt;
}

std::vector<std::size_t> ExemptLayers::most_of_others(const AllocationRequest& request) const {
  std::vector<std::size_t> out;
  for (std::size_t layer = 0; layer < n_layers_; ++layer)
    if (!contains(layer)) out.push_back(headroom(request, layer).most);
  return out;
}

std::vector<std::size_t> ExemptLayers::lanes(const AllocationRequest& request,
                                             const std::vector<std::size_t>& above) const {
  std::vector<std::size_t> out;
  for (std::size_t layer = 0, other = 0; layer < n_layers_; ++layer) {
    const std::size_t floor = std::min(request.floor, request.held_in(layer));
    out.insert(out.end(), request.n_kv_heads, contains(layer) ? kNeverEvict : floor + above[other++]);
  }
  return out;
}

ParamSpec exempt_first_param(std::size_t fallback) {
  return layers_param("first", fallback, "so many first layers are never compressed");
}

ParamSpec exempt_last_param(std::size_t fallback) {
  return layers_param("last", fallback, "so many last layers are never compressed");
}

}  // namespace kvsim::policy
