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
/// Everything else stands for itself, and each text may be a comma list. A policy that cannot run without a
/// value from its user (a file) is in no group. Throws Error(usage) when a pattern matches nothing.
std::vector<std::string> chosen_policies(const std::vector<std::string>& given,
                                         const policy::Registry& registry);

/// The items of comma lists, in order: options that name policies take either form, or both at once. A comma
/// inside parentheses belongs to a policy.
std::vector<std::string> listed_policies(const std::vector<std::string>& given);

}  // namespace kvsim::analysis
