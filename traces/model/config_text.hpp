#pragma once
/// The JSON of a model's folder as Python writes it.
#include <string>
#include <string_view>

#include "sim/base/strict_json.hpp"

namespace kvsim::model {

/// parse_strict_json(), but the words Infinity and -Infinity, which Python writes and JSON does not have
/// (time_step_limit of Nemotron-H), are numbers of +-1e308. Throws Error(input).
inline boost::json::value parse_config_text(std::string_view text, const std::string& where) {
  constexpr std::size_t kMostValues = 100'000;
  constexpr std::string_view kInfinity = "Infinity", kLargest = "1e308   ";  // as long: positions agree
  static_assert(kInfinity.size() == kLargest.size());
  std::string plain(text);
  bool quoted = false;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] == '"') quoted = !quoted;
    if (quoted && plain[i] == '\\') ++i;
    if (!quoted && text.substr(i).starts_with(kInfinity)) plain.replace(i, kInfinity.size(), kLargest);
  }
  return parse_strict_json(plain, where, kMostValues);
}

}  // namespace kvsim::model
