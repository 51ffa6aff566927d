#pragma once
/// Numbers and sizes as text, and back.
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvsim {

/// Returns the whole of `text` as a number of type T, independent of the locale; nullopt if it is not one or
/// does not fit.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Returns the shortest text that reads back as the number: "1e+300", not all its digits.
template <class Number>
std::string shortest(Number number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

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

/// Numbers of tokens and of bytes as people write them, in every option that takes one. A bare number, or one
/// with K or M, counts tokens; bytes have a unit that ends with B.
inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

/// 8192, 8K (8 * 1024), 1M (1024 * 1024); nothing for other texts and for what does not fit 64 bits.
std::optional<std::uint64_t> tokens_of(std::string_view text);
/// 512B, 64KiB, 1.5 MiB, 80GiB, 2TiB (powers of 1024), 500KB, 2MB, 80GB, 1TB (powers of 1000); nothing for
/// other texts.
std::optional<double> bytes_of(std::string_view text);

/// The same, with `where` naming the option in messages. Throw Error(usage) for other texts, for zero, and
/// for what does not fit 64 bits.
std::uint64_t parse_tokens(std::string_view text, const std::string& where);
std::uint64_t parse_bytes(std::string_view text, const std::string& where);

inline double real(std::uint64_t count) {
  return static_cast<double>(count);
}

}  // namespace kvsim
