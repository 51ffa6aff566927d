#pragma once
/// One point of a cost study: a policy at a budget, serving a workload on a machine.
#include <cstdint>
#include <optional>

#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"

namespace kvsim::cost {

struct Estimate {
  std::uint64_t budget = 0;    ///< tokens per lane; the whole sequence for policies without one
  Memory prefill{};            ///< when the prefill needs most
  Memory at_end{};             ///< after the last generated token
  std::uint64_t peak() const;  ///< of both; KIVI's residual of keys may exceed it by R - 1 tokens between
  bool fits = false;           ///< the peak fits the machine's memory
  Latency time{};
};

/// By the policy's rule. Throws what its parts throw.
Estimate estimate(const Model& model, const Machine& machine, const Serving& serving,
                  const policy::Composition& composition, std::uint64_t budget);
/// By what was held.
Estimate estimate(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                  const policy::Cost& cost, std::uint64_t budget);

/// The largest batch whose peak stays within `cap` bytes per device; 0 when not even one sequence does.
/// Serving::batch is not looked at.
std::uint64_t largest_batch(const Model& model, const Machine& machine, const Serving& serving,
                            const Holding& holding, const policy::Cost& cost, std::uint64_t cap);

}  // namespace kvsim::cost
