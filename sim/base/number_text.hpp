#pragma once
/// Numbers as text.
#include <charconv>
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

}  // namespace kvsim
