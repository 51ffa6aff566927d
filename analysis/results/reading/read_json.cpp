#include "analysis/results/reading/read_json.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostValues = 50'000'000;
constexpr std::size_t kMostValuesOfLine = 10'000;

Value value_of_json(const json::value& value, const JsonObject& row, const std::string& key) {
  if (value.is_null()) return {};
  if (const auto* text = value.if_string()) return std::string(text->data(), text->size());
  if (const auto* number = value.if_double()) return *number;
  if (const auto* whole = value.if_uint64()) return std::uint64_t{*whole};
  if (const auto* whole = value.if_int64())
    return *whole < 0 ? Value(static_cast<double>(*whole)) : Value(static_cast<std::uint64_t>(*whole));
  input_error("is neither text nor a number", row.path(key));
}

/// Appends an object; the first one names the columns.
void add_row(Records& out, const json::value& value, const std::string& where) {
  const JsonObject object(value, where);
  if (out.rows.empty())
    for (const auto& member : object.raw())
      out.columns.push_back({{member.key().data(), member.key().size()}, "", ""});
  std::vector<Value> row;
  for (const ColumnInfo& column : out.columns) {
    const json::value* field = object.raw().if_contains(column.key);
    if (field == nullptr) input_error("has no " + in_quotes(column.key) + ", unlike the first row", where);
    row.push_back(value_of_json(*field, object, column.key));
  }
  if (object.raw().size() != row.size()) input_error("has members that the first row has not", where);
  out.rows.push_back(std::move(row));
}

/// Units and descriptions; without rows they say which columns there are.
void describe_columns(Records& out, const json::array& columns, const std::string& path) {
  const bool rows = !out.rows.empty();
  for (const json::value& entry : columns) {
    const JsonObject object(entry, path + ", columns");
    const ColumnInfo column{object.text("key"), object.text_or("unit", ""),
                            object.text_or("description", "")};
    if (!rows) out.columns.push_back(column);
    for (ColumnInfo& each : out.columns)
      if (each.key == column.key) each = column;
  }
}

}  // namespace

Records parse_json_lines(std::string_view text, const std::string& path) {
  Records out;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string where = path + ":" + std::to_string(line);
    add_row(out, parse_strict_json(text.substr(0, end), where, kMostValuesOfLine), where);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

Records parse_json_document(std::string_view text, const std::string& path) {
  const json::value value = parse_strict_json(text, path, kMostValues);
  const JsonObject document(value, path);
  Records out;
  for (const json::value& row : document.array("results"))
    add_row(out, row, path + ", row " + std::to_string(out.rows.size() + 1));
  if (document.has("columns")) describe_columns(out, document.array("columns"), path);
  return out;
}

}  // namespace kvsim::analysis
