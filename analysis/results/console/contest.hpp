#pragma once
/// Which policy loses least.
#include <vector>

#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// Rows of the same trace, cut, budget, layer and head compete by the first of leading_metrics() that they
/// have; those without a budget, oracles and skipped cells do not. True: loses least of its contest, ties
/// included; false everywhere where all are alike.
std::vector<bool> winners(const std::vector<Row>& rows);

}  // namespace kvsim::analysis
