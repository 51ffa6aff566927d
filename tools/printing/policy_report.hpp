#pragma once
/// What policies say about themselves, as text: nothing here knows a policy by name.
#include <iosfwd>
#include <string_view>

#include "policies/api/registry.hpp"

namespace kvsim::tools {

/// `format`: table, json or md; otherwise throws Error(usage).
void write_policy_list(std::ostream& out, const policy::Registry& registry, std::string_view format);

/// Everything called `name`: an eviction or a preset, and an allocation, may share it. Throws Error(usage)
/// with the nearest names.
void write_policy_pages(std::ostream& out, const policy::Registry& registry, std::string_view name);

}  // namespace kvsim::tools
