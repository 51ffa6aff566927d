#include "tools/requests/whole_number.hpp"

#include <charconv>
#include <cstdint>

namespace kvsim::tools {

CLI::Validator whole_number() {
  const auto complaint = [](const std::string& text) -> std::string {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, value);
    if (failure == std::errc() && rest == end) return {};
    return "'" + text + "' is not a whole number from 0 to " + std::to_string(UINT64_MAX);
  };
  return CLI::Validator(complaint, "", "whole number");
}

}  // namespace kvsim::tools
