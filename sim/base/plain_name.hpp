#pragma once
/// Names as people type them.
#include <cctype>
#include <string>
#include <string_view>

namespace kvsim {

/// Letters and digits, in lower case: what two spellings of a name have in common (SnapKV, snap_kv).
inline std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace kvsim
