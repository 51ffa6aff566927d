#include "analysis/results/reading/column_types.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {

bool is_text_key(std::string_view key) {
  constexpr std::string_view kKeys[] = {
      "trace",     "policy",      "params",        "budget",       "scope",       "workload",
      "role",      "metric",      "other",         "other_params", "table",       "key",
      "unit",      "description", "ranking",       "rule",         "model",       "machine",
      "fits",      "cut",         "holding",       "item",         "mode",        "prefill",
      "positions", "skipped",     "turns",         "profile",      "prompt_rows", "decode_rows",
      "clear",     "budget_kind", "window",        "part",         "category",    "session",
      "tier",      "kv",          "device_policy", "host_policy",  "ssd_policy",  "keeping",
      "drafter",   "helped"};
  if (std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys)) return true;
  // What limits an operation of a pass is said in words; bounds of metrics are numbers.
  return key.ends_with("_bound") && (key.starts_with("prefill_") || key.starts_with("step_"));
}

Value text_field(std::string field) {
  return field.empty() ? Value() : Value(std::move(field));
}

std::optional<Value> number_field(std::string_view field) {
  if (const auto whole = number_of<std::uint64_t>(field)) return *whole;
  const auto number = number_of<double>(field);
  if (!number || !std::isfinite(*number)) return {};
  return *number;
}

namespace {

/// The first text that is no number, else the first text; where there is none, the number of rows.
std::size_t misplaced_text(const Records& records, std::size_t column) {
  std::size_t first = records.rows.size();
  for (std::size_t row = 0; row < records.rows.size(); ++row) {
    const auto* text = std::get_if<std::string>(&records.rows[row][column]);
    if (text == nullptr) continue;
    if (!number_field(*text)) return row;
    first = std::min(first, row);
  }
  return first;
}

}  // namespace

void expect_columns(Records& records, const std::vector<ColumnInfo>& expected, const std::string& where) {
  for (const ColumnInfo& column : expected) {
    const auto found =
        std::ranges::find_if(records.columns, [&](const ColumnInfo& each) { return each.key == column.key; });
    if (found == records.columns.end())
      input_error("has no column " + in_quotes(column.key), where,
                  "Was it written by this version of kvsim?");
    *found = column;
    if (is_text_key(column.key)) continue;
    const auto at = static_cast<std::size_t>(found - records.columns.begin());
    if (const std::size_t row = misplaced_text(records, at); row < records.rows.size())
      input_error(in_quotes(text(records.rows[row][at])) + " is not a number",
                  where + ", row " + std::to_string(row + 1) + ", column " + column.key);
  }
}

}  // namespace kvsim::analysis
