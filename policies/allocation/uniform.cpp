// The same budget everywhere.
#include <algorithm>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {
namespace {

class Uniform final : public Allocation {
 public:
  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    check_budget(request);
    return std::vector<std::size_t>(request.n_layers * request.n_kv_heads,
                                    std::min(request.budget, request.prompt));
  }
};

}  // namespace

PolicySpec uniform_spec() {
  return {.name = "uniform",
          .kind = Kind::allocation,
          .summary = "every lane gets the same budget",
          .details = "What a composition without an allocation uses.",
          .make_allocation = [](const Params&) { return std::make_unique<Uniform>(); }};
}

}  // namespace kvsim::policy
