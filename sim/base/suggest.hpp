#pragma once
/// Suggests the nearest valid spellings of an unknown name.
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

/// Returns the optimal string alignment distance (insert, delete, substitute, swap of neighbours), ignoring
/// case.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns at most `count` of `known`, nearest first; those further than half of `name`'s length (at least 2)
/// are left out, unless one contains the other.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known,
                                 std::size_t count = 3);

/// The one of `known` that `typed` is, or else spells: letters in either case, without `_`, `.` and `-`, and
/// with `ending` behind it or without. Nothing where that is none or several.
std::optional<std::string> spelled(std::string_view typed, const std::vector<std::string>& known,
                                   std::string_view ending = {});

/// Returns "Did you mean a, b or c?", or "Known: ..." (at most two dozen) when no name is near. Empty when
/// `known` is.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

// Names as people type them.

/// Letters and digits, in lower case: what two spellings of a name have in common (SnapKV, snap_kv).
inline std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace kvsim
