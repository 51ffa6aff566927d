#pragma once
/// Seconds of a prompt that is put together of documents whose keys and values are there: what is computed,
/// what is loaded, and the first token.
#include <cstdint>
#include <optional>

#include "sim/cost/latency.hpp"

namespace kvsim::cost {

struct AssemblyTime {
  std::uint64_t computed = 0;  ///< tokens of each prompt that go through the layers, the last one at least
  std::uint64_t bytes = 0;     ///< keys and values of the others, of the batch, that reach one device
  double compute = 0;          ///< s of the batch's prompts, up to the first token
  double load = 0;             ///< s in which these bytes cross the links; 0: they are on the device
  /// s: a layer is loaded while the one before is computed, so that the longer of both counts, and of the
  /// other one layer.
  double first_token = 0;
};

/// `computed`: of a prompt's tokens in all layers, the share that is computed (`computed` of kvsim evaluate
/// --prefill); they stand anywhere in it, so that each attends half of the prompt in the mean. `from`: where
/// the documents lie; none: on the device. Throws Error(usage) for a share outside [0, 1], and for a tier
/// that the machine has no link to.
AssemblyTime assembly_time(const Model& model, const Machine& machine, const Serving& serving,
                           double computed, std::optional<Tier> from);

}  // namespace kvsim::cost
