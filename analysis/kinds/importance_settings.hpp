#pragma once
/// What the kinds that look at XKV's importance w have in common.
#include "analysis/kinds/kind.hpp"

namespace kvsim::analysis {

/// "rows" and "pool", to which a kind adds its own.
std::vector<ParamSpec> importance_settings();

/// w of each layer, as sim/inspect/layer_importance.hpp has it, with these settings. Throws Error(usage) for
/// an even "pool" besides.
std::vector<std::vector<double>> importance_of(const Measurement& of);

}  // namespace kvsim::analysis
