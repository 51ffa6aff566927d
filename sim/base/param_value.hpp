#pragma once
/// The value of one parameter: from text to number and back, and what to say when it is not legal.
#include <string>
#include <string_view>

#include "sim/base/params.hpp"

namespace kvsim {

/// Throws Error(usage), placed at `where`, when `text` is not a legal value of `spec`: the message names the
/// parameter, what stands there, what is legal and the nearest choice. A ParamType::policy is a composition
/// of its own and not parsed here.
ParamValue parse_value(const ParamSpec& spec, std::string_view text, std::string_view where);

/// That message, for a value that is not even text.
[[noreturn]] void refuse_value(const ParamSpec& spec, std::string_view shown, std::string_view where);

/// "a whole number from 0 to 8", "one of mean, max", ...
std::string legal_values(const ParamSpec& spec);

/// The same in short, for help and reference tables: "1 to 64", "0 or more", "mean | max"; empty: any text.
std::string allowed_values(const ParamSpec& spec);

/// The spec that each item of a list is parsed with.
ParamSpec item_spec(const ParamSpec& spec);
/// Of counts, shares and texts.
bool is_list(ParamType type);

}  // namespace kvsim
