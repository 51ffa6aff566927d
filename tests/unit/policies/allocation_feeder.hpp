#pragma once
/// Measures for an allocation what it may see, as replay does.
#include <string>
#include <vector>

#include "policies/api/composition.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test {

using Tokens = std::vector<std::size_t>;

/// One run per layer, all KV heads in it.
using Layers = std::vector<Run>;
Layers random_layers(std::size_t n_layers, const Shape& shape, std::uint64_t seed, int levels = 1000000);

/// Returns all that the composition's allocation asks for, measured on `layers`.
AllocationRequest measured_request(const Composition& composition, const Layers& layers, std::size_t budget);

/// `allocation`: its text, e.g. pyramid(beta=4).
Tokens allocate(const std::string& allocation, const AllocationRequest& request);
Tokens allocate(const Composition& composition, const AllocationRequest& request);

/// kNeverEvict counts as the prompt.
std::size_t total(const Tokens& tokens, std::size_t prompt);

}  // namespace kvsim::policy::test
