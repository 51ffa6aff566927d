#pragma once
/// Sizes in bytes as readable text.
#include <array>
#include <charconv>
#include <cstdint>
#include <string>

namespace kvsim {

/// Returns e.g. "384 KiB": binary units, at most four digits.
inline std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 16> text;  // four digits and a point
  char* const end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 4).ptr;
  return std::string(text.data(), end) + ' ' + kUnits[unit];
}

}  // namespace kvsim
