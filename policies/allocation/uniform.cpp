// Gives every lane the same budget.
#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy::uniform {
namespace {

class Uniform final : public Allocation {
 public:
  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    std::vector<std::size_t> above;
    for (const Headroom& room : rooms(request).of) above.push_back(room.mean);
    return per_layer(request, above);
  }
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "uniform",
      .summary = "every lane gets the same budget",
      .details =
          "What a composition without an allocation uses. A share is one of what the lane can hold, and a "
          "layer with a sliding window holds no more than that.",
      .rule = AllocationRule{.even = true, .make = made<Uniform>}};
}

}  // namespace kvsim::policy::uniform
