#pragma once
/// Policies whose every row is the same usually mean that a parameter has no effect or a policy was mistyped:
/// worth a note.
#include <string>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Groups (of two or more `params`, in order of appearance) whose rows agree in every trace, budget, layer
/// and head of a replay's result. Cells that were skipped say nothing: policies skipped everywhere are in no
/// group.
std::vector<std::vector<std::string>> identical_policies(const Records& rows);

}  // namespace kvsim::analysis
