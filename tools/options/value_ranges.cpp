#include "tools/options/value_ranges.hpp"

#include <cmath>
#include <cstdint>
#include <optional>

#include "analysis/results/numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/sizes.hpp"

namespace kvsim::tools {
namespace {

constexpr std::size_t kMostValues = 100'000;  ///< of one list
constexpr double kMostCounted = 0x1p53;       ///< a double holds every whole number up to it

enum class Unit { tokens, bytes, percent };

/// The last number of a range says what it counts.
Unit unit_of(std::string_view text) {
  return text.ends_with('%') ? Unit::percent : text.ends_with('B') ? Unit::bytes : Unit::tokens;
}

/// A number that a range counts with: percents as they are, tokens and bytes in units of one.
double number_in(std::string_view text, Unit unit, const std::string& where) {
  if (unit == Unit::tokens) return static_cast<double>(parse_tokens(text, where));
  if (unit == Unit::bytes) return static_cast<double>(parse_bytes(text, where));
  if (text.ends_with('%')) text.remove_suffix(1);
  const std::optional<double> value = number_of<double>(text);
  if (!value || !(*value > 0) || !std::isfinite(*value)) usage_error("is no share above 0%", where);
  return *value;
}

std::string text_of(double value, Unit unit) {
  if (unit == Unit::percent) return analysis::exact_text(value) + '%';
  return std::to_string(static_cast<std::uint64_t>(std::llround(value))) + (unit == Unit::bytes ? "B" : "");
}

}  // namespace

void append_values(std::vector<std::string>& out, std::string_view item, const std::string& where) {
  const std::size_t dots = item.find("..");
  if (dots == std::string_view::npos) {
    out.emplace_back(item);
    return;
  }
  const std::size_t colon = item.find(':', dots);
  const std::string hint = "A range says how it goes on: 1K..128K:x2 doubles, 1K..8K:+1K adds 1024.";
  if (colon == std::string_view::npos || colon + 2 >= item.size()) usage_error("is no range", where, hint);
  const std::string_view low_text = item.substr(0, dots), high_text = item.substr(dots + 2, colon - dots - 2);
  const Unit unit = unit_of(high_text);
  const double low = number_in(low_text, unit, where), high = number_in(high_text, unit, where);
  const char how = item[colon + 1];
  const std::string_view step_text = item.substr(colon + 2);
  const double step = how == 'x'   ? number_of<double>(step_text).value_or(0)
                      : how == '+' ? number_in(step_text, unit, where)
                                   : 0;
  if (!(how == 'x' ? step > 1 && std::isfinite(step) : step > 0)) usage_error("is no range", where, hint);
  if (low > high) usage_error("ends before it begins", where, hint);
  if (high > kMostCounted) usage_error("goes beyond the 2^53 that a range counts to", where);
  // The nudge lets 10% + 0.1% * 900 arrive at 100%.
  for (double value = low; value <= high * (1 + 1e-12); value = how == 'x' ? value * step : value + step) {
    if (out.size() >= kMostValues)
      usage_error("has more than " + std::to_string(kMostValues) + " values", where);
    std::string text = text_of(value, unit);
    // Small steps of a factor round to the same number.
    if (out.empty() || out.back() != text) out.push_back(std::move(text));
  }
}

}  // namespace kvsim::tools
