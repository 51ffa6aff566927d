#pragma once
/// Enumerations whose words stand in an array, in the order of the enumerators.
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim {

template <class Enum, std::size_t n>
constexpr const char* name_in(const char* const (&names)[n], Enum value) {
  return names[static_cast<std::size_t>(value)];
}

/// The enumerator of that name; none: there is no such name.
template <class Enum, std::size_t n>
constexpr std::optional<Enum> named_in(const char* const (&names)[n], std::string_view name) {
  for (std::size_t i = 0; i < n; ++i)
    if (name == names[i]) return static_cast<Enum>(i);
  return {};
}

/// The same, but throws Error(usage) about an unknown `what` at `where`, with the nearest name.
template <class Enum, std::size_t n>
Enum parse_named(const char* const (&names)[n], std::string_view name, const std::string& what,
                 const std::string& where = {}) {
  if (const auto found = named_in<Enum>(names, name)) return *found;
  usage_error("unknown " + what + " \"" + std::string(name) + "\"", where,
              suggestion(name, {std::begin(names), std::end(names)}));
}

}  // namespace kvsim
