#pragma once
/// Describes the cost of policies beside exact attention, in sentences and as a table, for one layer of a
/// well-known model.
#include <string>
#include <vector>

#include "policies/api/registry.hpp"

namespace kvsim::tools {

/// The setting of the numbers: "a layer of 32 query heads and 8 KV heads of 128 (as in Llama-3-8B), ...".
std::string cost_setting();
/// Sentences about the cost of `spec` with its defaults, or why there is none to state.
std::vector<std::string> cost_sentences(const policy::PolicySpec& spec, const policy::Registry& registry);
/// A Markdown table of every eviction and allocation that states a cost.
std::string cost_table(const policy::Registry& registry);
/// The same of representations, and of selections.
std::string representation_cost_table(const policy::Registry& registry);
std::string selection_cost_table(const policy::Registry& registry);

}  // namespace kvsim::tools
