#pragma once
/// What a plan of retention keeps, by its definition.
#include "policies/parts/oracles/planned_oracle.hpp"

namespace kvsim::test {

/// The attention on residents and on every query's own key, summed over all steps. `attention`: the rows that
/// the plan's MassAhead was made from.
inline double retained_attention(const MatrixView& attention, const policy::RetentionPlan& plan) {
  double sum = 0;
  for (std::size_t s = 0; s < attention.rows; ++s) {
    const std::size_t own = attention.cols - attention.rows + s;
    const std::span<const float> seen = attention.row(s).first(own + 1);
    for (std::size_t j = 0; j <= own; ++j)
      if (j == own || plan.until[j] > s) sum += static_cast<double>(seen[j]);
  }
  return sum;
}

}  // namespace kvsim::test
