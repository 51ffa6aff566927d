#pragma once
/// What the kinds that look at allocations have in common: how each policy splits a budget over layers.
#include "analysis/kinds/kind.hpp"

namespace kvsim::analysis {

std::vector<ParamSpec> allocation_settings();
/// trace, policy, params, budget, layer, tokens, share.
std::vector<ColumnInfo> allocation_columns();
/// Rows of these columns, policies in the order given, layers ascending. `tokens` and `share` are undefined
/// for a policy that cannot run on the trace. Throws Error(usage) with the reason when none can.
std::vector<std::vector<Value>> measure_allocation(const Measurement& of);

}  // namespace kvsim::analysis
