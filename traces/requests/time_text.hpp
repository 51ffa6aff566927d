#pragma once
/// Times as logs write them.
#include <optional>
#include <string>
#include <string_view>

namespace kvsim::requests {

/// Seconds since 1970 of "2024-05-10 00:00:00.009930+00:00" in UTC, whose fraction and zone may be left out
/// and which may have a T between date and time. nullopt: it is none.
std::optional<double> seconds_of(std::string_view text);

/// That, or a number of seconds. Throws Error(input) naming `field` at `where` for anything else.
double seconds_at(std::string_view text, std::string_view field, const std::string& where);

}  // namespace kvsim::requests
