// Exempts some layers from compression.
#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/splits/exempt_layers.hpp"
#include "policies/parts/splits/whole_numbers.hpp"

namespace kvsim::policy::exempt {
namespace {

class Exempt final : public Allocation {
 public:
  explicit Exempt(const Params& params) : params_(params) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    const ExemptLayers exempt(params_, request.n_layers);
    std::vector<std::size_t> above(exempt.n_others());
    spread(above, exempt.left_for_others(request), exempt.most_of_others(request));
    return exempt.lanes(request, above);
  }

 private:
  Params params_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "exempt",
      .summary = "the first or last layers keep everything, the others share the rest evenly",
      .details =
          "An exempt layer holds its whole prompt and never drops a generated token; it counts as the prompt "
          "in the total. The others share what is left, one token more for the first of them where it does "
          "not divide. A budget that does not pay for the exempt layers is refused.",
      .departures = {{"codes that skip layers compress the others as if nothing had been skipped",
                      "the total is the budget's: the others get less"}},
      .params = {exempt_first_param(2), exempt_last_param(0)},
      .rule = AllocationRule{.make = made<Exempt>}};
}

}  // namespace kvsim::policy::exempt
