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

/// `per_layer`: of `above`, which has a number for each of so many units of a layer.
std::vector<std::size_t> repeated(const AllocationRequest& request, std::span<const std::size_t> above,
                                  std::size_t per_layer) {
  std::vector<std::size_t> out;
  out.reserve(request.n_lanes());
  for (std::size_t i = 0; i < above.size(); ++i)
    out.insert(out.end(), request.n_kv_heads / per_layer,
               std::min(request.floor, request.held_in(i / per_layer)) + above[i]);
  return out;
}

}  // namespace

Headroom headroom(const AllocationRequest& request, std::size_t layer) {
  const std::size_t given = request.given_in(layer), held = request.held_in(layer);
  if (given < request.floor && (request.even() || given < held))
    usage_error("a budget of " + std::to_string(given) + " tokens per lane is below the " +
                    std::to_string(request.floor) + " that the eviction policy always keeps",
                {}, "Give a larger budget, or the policy a smaller window or fewer sinks.");
  const std::size_t floor = std::min(request.floor, held);
  return {.floor = floor, .mean = std::min(given, held) - floor, .most = held - floor};
}

std::size_t Rooms::total() const {
  std::size_t sum = 0;
  for (const Headroom& room : of) sum += room.mean;
  return sum;
}

std::vector<std::size_t> Rooms::most() const {
  std::vector<std::size_t> out;
  for (const Headroom& room : of) out.push_back(room.most);
  return out;
}

Rooms rooms(const AllocationRequest& request, std::size_t per_layer) {
  Rooms out;
  for (std::size_t layer = 0; layer < request.n_layers; ++layer)
    out.of.insert(out.of.end(), per_layer, headroom(request, layer));
  return out;
}

void require_even(const AllocationRequest& request, const std::string& variant) {
  if (!request.even())
    usage_error(
        "is published for layers of one size, and some layers of this model hold no more than their "
        "sliding window",
        variant, "variant=exact gives what they cannot use to the others.");
}

std::vector<std::size_t> per_layer(const AllocationRequest& request, std::span<const std::size_t> above) {
  return repeated(request, above, 1);
}

std::vector<std::size_t> per_unit(const AllocationRequest& request, std::span<const std::size_t> above) {
  return repeated(request, above, request.units_per_layer());
}

std::vector<double> layer_means(const AllocationRequest& request, std::span<const double> per_lane) {
  return block_means(per_lane, request.n_kv_heads);
}

std::vector<double> unit_means(const AllocationRequest& request, std::span<const double> per_lane) {
  return block_means(per_lane, request.n_kv_heads / request.units_per_layer());
}

}  // namespace kvsim::policy
