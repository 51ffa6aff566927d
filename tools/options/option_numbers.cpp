#include "tools/options/option_numbers.hpp"

#include <cmath>
#include <cstdint>
#include <optional>

#include "analysis/results/numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::tools {

Check whole_number() {
  const auto complaint = [](const std::string& text) -> std::string {
    if (number_of<std::uint64_t>(text)) return {};
    return in_quotes(text) + " is not a whole number from 0 to " + std::to_string(UINT64_MAX);
  };
  return {complaint};
}

Check token_count() {
  const auto convert = [](std::string& text) -> std::string {
    const std::optional<std::uint64_t> tokens = tokens_of(text);
    if (!tokens) return in_quotes(text) + " is no number of tokens; one is 8192, 8K (8 * 1024) or 1M";
    text = std::to_string(*tokens);
    return {};
  };
  return {convert};
}

Check byte_count() {
  const auto convert = [](std::string& text) -> std::string {
    const double bytes = bytes_of(text).value_or(0);
    if (!(bytes >= 1 && bytes < 0x1p63))
      return in_quotes(text) + " is no size in bytes; one is 512MiB, 80GiB (2^30 bytes) or 80GB (10^9 bytes)";
    text = std::to_string(static_cast<std::uint64_t>(bytes));
    return {};
  };
  return {convert};
}

void add_threads(Command command, unsigned& threads, unsigned most) {
  command.add_option("--threads", threads, "N", "Never changes a result (default: all)", between(1U, most));
}

void add_memory_limit(Command command, std::uint64_t& bytes, const std::string& help) {
  command.add_option("--memory-limit", bytes, "SIZE", help, byte_count()).default_str("");
}

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

void group_options(Command command, const std::string& group, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (command.has_option(name) && !command.option(name).is_required()) command.option(name).group(group);
}

void group_shared_options(Command root) {
  group_options(
      root, "Results",
      {"--format", "--output", "--overwrite", "--decisions", "--plot", "--per", "--losses", "--bounds"});
  group_options(root, "Run", {"--threads", "--seed", "--memory-limit", "--quiet"});
  for (const Command& command : root.subcommands()) group_shared_options(command);
}

void require_names_of_outputs(Command root) {
  for (const char* name : {"--output", "--decisions", "--second-pass"})
    if (root.has_option(name))
      root.option(name).check(
          {[](std::string& text) { return std::string(text.empty() ? "is empty; name a file" : ""); }});
  for (const Command& command : root.subcommands()) require_names_of_outputs(command);
}

}  // namespace kvsim::tools
