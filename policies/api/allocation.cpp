#include "policies/api/allocation.hpp"

#include "sim/base/error.hpp"

namespace kvsim::policy {

void check_budget(const AllocationRequest& request) {
  if (request.budget < request.floor)
    usage_error("a budget of " + std::to_string(request.budget) + " tokens per lane is below the " +
                    std::to_string(request.floor) + " that the eviction policy always keeps",
                {}, "Give a larger budget, or the policy a smaller window or fewer sinks.");
}

std::vector<std::size_t> per_lane(const std::vector<std::size_t>& above, std::size_t floor,
                                  std::size_t n_kv_heads) {
  std::vector<std::size_t> out;
  out.reserve(above.size() * n_kv_heads);
  for (const std::size_t n : above) out.insert(out.end(), n_kv_heads, floor + n);
  return out;
}

}  // namespace kvsim::policy
