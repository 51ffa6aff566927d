#include "traces/model/config_text.hpp"

#include "sim/base/strict_json.hpp"

namespace kvsim::model {
namespace {

constexpr std::size_t kMaxConfigValues = 100'000;
constexpr std::string_view kInfinity = "Infinity", kLargest = "1e308   ";  // as long, so that positions agree
static_assert(kInfinity.size() == kLargest.size());

}  // namespace

boost::json::value parse_config_text(std::string_view text, const std::string& where) {
  std::string plain(text);
  bool quoted = false;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] == '"') quoted = !quoted;
    if (quoted && plain[i] == '\\') ++i;
    if (!quoted && text.substr(i).starts_with(kInfinity)) plain.replace(i, kInfinity.size(), kLargest);
  }
  return parse_strict_json(plain, where, kMaxConfigValues);
}

}  // namespace kvsim::model
