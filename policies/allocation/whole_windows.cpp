// Leaves layers with a sliding window whole.
#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy::whole_windows {
namespace {

class WholeWindows final : public Allocation {
 public:
  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    std::vector<std::size_t> above;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer) {
      const Headroom room = headroom(request, layer);
      above.push_back(request.held_in(layer) < request.prompt ? room.most : room.mean);
    }
    return per_layer(request, above);
  }
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "whole_windows",
      .summary = "layers with a sliding window are left whole, and the budget is that of the others alone",
      .details =
          "A layer whose window is shorter than the prompt holds its whole window; every other layer gets "
          "the budget. The total is larger than the budget says, and results report it. Where no window is "
          "shorter than the prompt this is uniform.",
      .departures = {{"kvpress: leaves window layers of Gemma 3 alone", "of every model"}},
      .rule = AllocationRule{
          .even = true, .inexact = [](const Params&) { return true; }, .make = made<WholeWindows>}};
}

}  // namespace kvsim::policy::whole_windows
