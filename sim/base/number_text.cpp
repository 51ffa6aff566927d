#include "sim/base/number_text.hpp"

#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/split.hpp"

namespace kvsim {
namespace {

constexpr const char* kTokenForms = "A number of tokens is 8192, 8K (8 * 1024) or 1M (1024 * 1024).";

bool digits_only(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// 8K: 10 bits, and the 8 before them.
struct Scaled {
  std::string_view digits;
  int shift = 0;
};

Scaled scaled(std::string_view text) {
  if (text.ends_with('K') || text.ends_with('k')) return {text.substr(0, text.size() - 1), 10};
  if (text.ends_with('M')) return {text.substr(0, text.size() - 1), 20};
  return {text};
}

struct Unit {
  std::string_view text;
  double bytes;
};
constexpr Unit kUnits[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"KB", 1e3},
                           {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"B", 1}};

}  // namespace

std::optional<std::uint64_t> tokens_of(std::string_view text) {
  const auto [digits, shift] = scaled(text);
  if (!digits_only(digits)) return std::nullopt;
  const std::optional<std::uint64_t> value = number_of<std::uint64_t>(digits);
  if (!value || *value > (~std::uint64_t{0} >> shift)) return std::nullopt;
  return *value << shift;
}

std::optional<double> bytes_of(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.text)) continue;
    const std::optional<double> value =
        number_of<double>(trimmed(text.substr(0, text.size() - unit.text.size())));
    if (!value || !std::isfinite(*value)) return std::nullopt;
    return *value * unit.bytes;
  }
  return std::nullopt;
}

std::uint64_t parse_tokens(std::string_view text, const std::string& where) {
  const std::optional<std::uint64_t> tokens = tokens_of(text);
  if (!tokens && digits_only(scaled(text).digits))
    usage_error(in_quotes(text) + " does not fit 64 bits", where, kTokenForms);
  if (!tokens) usage_error(in_quotes(text) + " is no number of tokens", where, kTokenForms);
  if (*tokens == 0) usage_error("must be at least 1", where, kTokenForms);
  return *tokens;
}

std::uint64_t parse_bytes(std::string_view text, const std::string& where) {
  const std::optional<double> bytes = bytes_of(text);
  if (!bytes || *bytes < 1)
    usage_error(in_quotes(text) + " is no size in bytes", where,
                "Say it like 80GiB (2^30 bytes) or 80GB (10^9 bytes).");
  if (*bytes >= 0x1p63) usage_error(in_quotes(text) + " does not fit 64 bits", where);
  return static_cast<std::uint64_t>(*bytes);
}

}  // namespace kvsim
