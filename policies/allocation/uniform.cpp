// Gives every lane the same budget.
#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy::uniform {
namespace {

class Uniform final : public Allocation {
 public:
  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    const Headroom room = headroom(request);
    return std::vector<std::size_t>(request.n_lanes(), room.floor + room.mean);
  }
};

}  // namespace

PolicySpec spec() {
  return {.name = "uniform",
          .summary = "every lane gets the same budget",
          .details = "What a composition without an allocation uses.",
          .rule = AllocationRule{.even = true, .make = made<Uniform>}};
}

}  // namespace kvsim::policy::uniform
