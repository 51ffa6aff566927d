#pragma once
/// Parses text that is exactly one number.
#include <charconv>
#include <optional>
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

}  // namespace kvsim
