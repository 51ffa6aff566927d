#pragma once
/// Nearest valid spellings for a name nobody knows.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

/// Optimal string alignment distance (insert, delete, substitute, swap of neighbours), case-blind.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// At most `count` of `known`, nearest first; those further than half of `name`'s length (at least 2) are
/// left out, unless one contains the other.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known,
                                 std::size_t count = 3);

/// "Did you mean a, b or c?", or "Known: ..." (two dozen at most) when nothing is near. Empty when `known`
/// is.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

}  // namespace kvsim
