#pragma once
/// One point of a cost study: a policy at a budget, serving a workload on a machine.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"

namespace kvsim::cost {

struct Estimate {
  std::uint64_t budget = 0;    ///< tokens per lane; the whole sequence for policies without one
  Memory prefill{};            ///< at the moment when the prefill needs most
  Memory at_end{};             ///< after the last generated token
  std::uint64_t peak() const;  ///< of both; KIVI's residual of keys may exceed it by R - 1 tokens between
  std::uint64_t peak(Tier tier) const;  ///< bytes of a tier, for one device
  /// Whether the parts of all devices fit each tier; true where its size is not known.
  bool tiers_fit = true;
  bool fits = false;  ///< the peak fits the machine's memory, and what is offloaded its tiers
  Latency time{};
  /// Seconds to preempt one sequence at its end: either its cache goes to host memory and comes back (empty
  /// without a host link), or prompt and generated tokens are prefilled once more.
  std::optional<double> swap{};
  double recompute = 0;
};

/// Returns the seconds in which the cache of one sequence, as held after the last token, goes to host memory
/// and comes back: keys, values and empty slots of the device. Whole layers are copied, or with pages the
/// contiguous parts: the keys or the values of one page and layer, or lane where lanes have pages of their
/// own (vLLM: Kwon et al. 2023). Empty without a host link.
std::optional<double> swap_seconds(const Model& model, const Machine& machine, const Serving& serving,
                                   const Holding& holding, const policy::Cost& cost);
/// Returns the seconds in which a preempted sequence gets its cache back by a prefill of its own.
double recompute_seconds(const Model& model, const Machine& machine, const Serving& serving,
                         const Holding& holding, const policy::Cost& cost);

/// Estimates by the policy's rule. Throws what its parts throw.
Estimate estimate(const Model& model, const Machine& machine, const Serving& serving,
                  const policy::Composition& composition, std::uint64_t budget);
/// Estimates by a given holding.
Estimate estimate(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                  const policy::Cost& cost, std::uint64_t budget);

/// Returns the largest batch whose peak stays within `cap` bytes per device and the host's memory; 0 when not
/// even one sequence does. Ignores Serving::batch.
std::uint64_t largest_batch(const Model& model, const Machine& machine, const Serving& serving,
                            const Holding& holding, const policy::Cost& cost, std::uint64_t cap);

// Estimates many points at once.

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
