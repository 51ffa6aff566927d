#pragma once
/// Prints the list of policies and the description of one policy from their specs. No code here depends on a
/// policy's name.
#include <iosfwd>
#include <string_view>

#include "policies/api/registry.hpp"

namespace kvsim::tools {

/// Writes the list in `format`: table, json or md. Throws Error(usage) for any other format.
void write_policy_list(std::ostream& out, const policy::Registry& registry, std::string_view format);

/// Describes everything called `name`: an eviction or a preset may share its name with an allocation; or a
/// composition, by its parts. Throws Error(usage) naming the most similar names.
void write_policy_report(std::ostream& out, const policy::Registry& registry, std::string_view name);

}  // namespace kvsim::tools
