#pragma once
/// What policies cost beside exact attention, in words and as a table, for one layer of a well-known model.
#include <string>
#include <vector>

#include "policies/api/registry.hpp"

namespace kvsim::tools {

/// What the numbers are of: "a layer of 32 query heads and 8 KV heads of 128 (as in Llama-3-8B), ...".
std::string cost_setting();
/// Sentences about `spec` with its defaults; none when there is nothing to say (oracles, no defaults).
std::vector<std::string> cost_sentences(const policy::PolicySpec& spec, const policy::Registry& registry);
/// A Markdown table of everything that states a cost.
std::string cost_table(const policy::Registry& registry);

}  // namespace kvsim::tools
