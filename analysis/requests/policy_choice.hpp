#pragma once
/// What may be written for a policy besides a composition: groups of policies, and patterns of names.
#include <string>
#include <vector>

#include "policies/api/registry.hpp"

namespace kvsim::analysis {

/// Texts of the compositions that `given` stand for, in order:
///   all        every eviction with its defaults, and the systems of the papers (presets without a dot)
///   oracles    the bounds
///   a*b        every eviction, oracle or preset whose name matches, variants included (h2o*)
/// Everything else stands for itself. A policy that cannot run without a value from its user (a file) is in
/// no group. Throws Error(usage) when a pattern matches nothing or a comma outside parentheses separates two.
std::vector<std::string> chosen_policies(const std::vector<std::string>& given,
                                         const policy::Registry& registry);

}  // namespace kvsim::analysis
