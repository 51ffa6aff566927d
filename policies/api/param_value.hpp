#pragma once
/// The value of one parameter: from text to number and back, and what to say when it is not legal.
#include <string>
#include <string_view>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// Throws Error(usage), placed at `where`, when `text` is not a legal value of `spec`.
Params::Entry parse_value(const ParamSpec& spec, std::string_view text, std::string_view where);

/// "a whole number from 0 to 8", "one of mean, max", ...
std::string legal_values(const ParamSpec& spec);

}  // namespace kvsim::policy
