#include "policies/api/allocation.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

std::vector<double> block_means(std::span<const double> values, std::size_t block) {
  std::vector<double> out(values.size() / block);
  for (std::size_t i = 0; i < out.size() * block; ++i)
    out[i / block] += values[i] / static_cast<double>(block);
  return out;
}

std::vector<std::size_t> repeated(std::span<const std::size_t> above, std::size_t floor, std::size_t times) {
  std::vector<std::size_t> out;
  out.reserve(above.size() * times);
  for (const std::size_t n : above) out.insert(out.end(), times, floor + n);
  return out;
}

}  // namespace

Headroom headroom(const AllocationRequest& request) {
  if (request.budget < request.floor)
    usage_error("a budget of " + std::to_string(request.budget) + " tokens per lane is below the " +
                    std::to_string(request.floor) + " that the eviction policy always keeps",
                {}, "Give a larger budget, or the policy a smaller window or fewer sinks.");
  const std::size_t floor = std::min(request.floor, request.prompt);
  return {.floor = floor,
          .mean = std::min(request.budget, request.prompt) - floor,
          .most = request.prompt - floor};
}

std::vector<std::size_t> per_layer(const AllocationRequest& request, std::span<const std::size_t> above) {
  return repeated(above, std::min(request.floor, request.prompt), request.n_kv_heads);
}

std::vector<std::size_t> per_unit(const AllocationRequest& request, std::span<const std::size_t> above) {
  return repeated(above, std::min(request.floor, request.prompt),
                  request.n_kv_heads / request.units_per_layer());
}

std::vector<double> layer_means(const AllocationRequest& request, std::span<const double> per_lane) {
  return block_means(per_lane, request.n_kv_heads);
}

std::vector<double> unit_means(const AllocationRequest& request, std::span<const double> per_lane) {
  return block_means(per_lane, request.n_kv_heads / request.units_per_layer());
}

}  // namespace kvsim::policy
