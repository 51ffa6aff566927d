#pragma once
/// Times as logs write them.
#include <optional>
#include <string_view>

namespace kvsim::requests {

/// Seconds since 1970 of "2024-05-10 00:00:00.009930+00:00" in UTC, whose fraction and zone may be left out
/// and which may have a T between date and time. nullopt: it is none.
std::optional<double> seconds_of(std::string_view text);

}  // namespace kvsim::requests
