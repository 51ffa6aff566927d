#pragma once
/// Many estimates at once.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/cost/estimate.hpp"

namespace kvsim::cost {

/// One point of a sweep. What it points to must outlive the call.
struct SweepPoint {
  const Model* model = nullptr;
  const Machine* machine = nullptr;
  const policy::Composition* composition = nullptr;
  Serving serving{};
  std::uint64_t budget = 0;
  std::uint64_t cap = 0;  ///< bytes per device that the largest batch is looked for in; 0: it is not
};

struct SweepResult {
  Estimate estimate{};
  std::uint64_t largest_batch = 0;  ///< within the point's cap
  std::string
      problem{};  ///< why there is no estimate: the message of its Error(usage); empty if there is one
};

/// estimate() of every point, in their order, whatever the number of threads (0: as many as the machine has).
/// A point that cannot be served says so and leaves the others alone; errors of other kinds are thrown.
std::vector<SweepResult> sweep(std::span<const SweepPoint> points, unsigned threads = 0);

}  // namespace kvsim::cost
