#pragma once
/// What norms of values after the output projection cost.
#include "policies/parts/costs/cost_terms.hpp"

namespace kvsim::policy {

/// Multiplies every query head's values with its part of the output projection, of which only norms are
/// written.
inline Work projected_values(const CostShape& shape) {
  const double outputs = real(shape.query_heads) * real(shape.prompt) * real(shape.hidden);
  const double weights = real(shape.query_heads) * real(shape.value_dim) * real(shape.hidden);
  Work norms = over_values(shape, shape.prompt, 0);
  norms.flops = 2 * real(shape.value_dim) * outputs;
  norms.ops = 2 * outputs;
  norms.bytes += weights * real(shape.element_bytes);
  return norms;
}

}  // namespace kvsim::policy
