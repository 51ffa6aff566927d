#include "sim/cost/offload.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/sizes.hpp"
#include "sim/cost/checked.hpp"

namespace kvsim::cost {

std::uint64_t share_of(std::uint64_t bytes, double share) {
  if (share == 1) return bytes;  // exact, unlike a product in floating point
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * share);
}

double transfer_time(const Link& link, std::uint64_t bytes, std::uint64_t operations) {
  if (!(link.bandwidth > 0)) usage_error("has no bandwidth: nothing can be moved over it", "link");
  return real(bytes) / link.bandwidth + real(operations) * link.latency;
}

double prefill_block(double load, double store, double compute) {
  return std::max({load, store, compute});
}

double step_block(double load, double store, double compute) {
  return load + std::max(store, compute);
}

double ahead_block(double early, double late, double store, double compute) {
  return prefill_block(early, store, compute) + late;
}

double swap_time(const Link& link, std::uint64_t bytes, std::uint64_t chunk) {
  if (chunk == 0) usage_error("is zero bytes", "chunk");
  return 2 * transfer_time(link, bytes, ceil_divided(bytes, chunk));
}

}  // namespace kvsim::cost
