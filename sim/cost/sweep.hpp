#pragma once
/// Estimates many points at once.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/cost/estimate.hpp"

namespace kvsim::cost {

/// One point of a sweep. The objects it points to must outlive the call.
struct SweepPoint {
  const Model* model = nullptr;
  const Machine* machine = nullptr;
  const policy::Composition* composition = nullptr;
  Serving serving{};
  std::uint64_t budget = 0;
  std::optional<double> share{};  ///< as rule_holding() takes it
  std::uint64_t cap = 0;          ///< bytes per device for the search of the largest batch; 0: no search
};

struct SweepResult {
  Estimate estimate{};
  std::uint64_t largest_batch = 0;  ///< within the point's cap
  std::string
      problem{};  ///< why there is no estimate: the message of its Error(usage); empty if there is one
};

/// Returns estimate() of every point, in their order, whatever the number of threads (0: as many as the
/// machine has). A point that cannot be served has a `problem` and does not affect the others; errors of
/// other kinds are thrown.
std::vector<SweepResult> sweep(std::span<const SweepPoint> points, unsigned threads = 0);

}  // namespace kvsim::cost
