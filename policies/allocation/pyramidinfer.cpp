// Gives every layer a share of what the layer before it kept.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/splits/whole_numbers.hpp"

namespace kvsim::policy::pyramidinfer {
namespace {

/// A context this short is not compressed.
constexpr std::size_t kLeastContext = 64;

class PyramidInfer final : public Allocation {
 public:
  explicit PyramidInfer(const Params& params)
      : rho_(params.real("rho")), recent_(params.real("recent")), published_(published_variant(params)) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    const Rooms room = rooms(request);
    std::vector<std::size_t> above = lengths(request.prompt, request.n_layers);
    if (!published_) {
      const std::vector<double> weights(above.begin(), above.end());
      return per_layer(request, shared_out(weights, room.total(), room.most()));
    }
    require_even(request, "pyramidinfer(variant=official)");
    const std::size_t floor = room.of[0].floor;
    for (std::size_t& n : above) n = std::max(n, floor) - floor;
    return per_layer(request, above);
  }

 private:
  /// Returns how many tokens each layer holds: all in the first layer; in each next one, what is kept of the
  /// layer before.
  std::vector<std::size_t> lengths(std::size_t prompt, std::size_t n_layers) const {
    const std::size_t always = 1 + static_cast<std::size_t>(recent_ * static_cast<double>(prompt));
    std::vector<std::size_t> out;
    std::size_t held = prompt;
    for (std::size_t layer = 0; layer < n_layers; ++layer) {
      out.push_back(held);
      const auto kept = static_cast<std::size_t>(static_cast<double>(held - std::min(held, always)) *
                                                 ratio(layer, n_layers));
      if (kept > kLeastContext) held = kept + always;
    }
    return out;
  }

  /// Returns a ratio that falls from 1 to almost rho along half a cosine.
  double ratio(std::size_t layer, std::size_t n_layers) const {
    const double angle = std::numbers::pi * static_cast<double>(layer) / static_cast<double>(n_layers);
    return (1 - rho_) * (std::cos(angle) + 1) / 2 + rho_;
  }

  double rho_, recent_;
  bool published_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "pyramidinfer",
      .summary = "each layer keeps a share of the layer before it, less and less along a cosine",
      .paper =
          "Yang, Han, Gao, Hu, Zhang, Zhao, PyramidInfer: Pyramid KV Cache Compression for High-throughput "
          "LLM Inference, Findings of ACL 2024, https://arxiv.org/abs/2405.12532",
      .details =
          "Of what layer l of L holds, all but the last token and a share `recent` of the prompt is cut to "
          "(1 - rho) * (cos(pi l / L) + 1) / 2 + rho of it, rounded down, for layer l + 1, unless no more "
          "than 64 would remain. The budget above the eviction's floor is split in proportion to these "
          "lengths. variant=official: the lengths themselves, whatever the budget.",
      .departures = {{"paper: pruned tokens leave the hidden states, so deeper layers never compute them",
                      "budgets only: a recorded run holds every layer's attention over the whole prompt"},
                     {"authors' code: a linear decay is overwritten by a constant",
                      "the cosine, their default"}},
      .params = {real_param("rho", "0.9", {0, 1}, "of its context that the last layer hands on", "share"),
                 real_param("recent", "0.2", {0, 1}, "of the prompt, its end, that is never cut", "share"),
                 variant_param({"official"})},
      .rule = AllocationRule{.inexact = published_variant, .make = made<PyramidInfer>}};
}

}  // namespace kvsim::policy::pyramidinfer
