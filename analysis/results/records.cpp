#include "analysis/results/records.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "analysis/results/json_string.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

/// Spreadsheets would run a text that begins like a formula: it gets an apostrophe, as does one that has some
/// already.
std::string no_formula(const std::string& text) {
  return is_formula(text) ? '\'' + text : text;
}

/// RFC 4180: quoted when it must be, quotes doubled. Bare, a byte order mark at the start of a file would be
/// taken for the file's own.
std::string csv_field(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos && !text.starts_with("\xef\xbb\xbf")) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
  return '"' + text + '"';
}

/// A cell of a GitHub table: one line, bars escaped.
std::string md_field(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

std::string json_object(const std::vector<ColumnInfo>& columns, const std::vector<Value>& row) {
  std::string text = "{";
  for (std::size_t i = 0; i < row.size(); ++i)
    text += (i > 0 ? ", " : "") + json_string(columns[i].key) + ": " + json_field(row[i]);
  return text + '}';
}

}  // namespace

std::optional<double> number(const Value& value) {
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return {};
}

const std::string& text(const Value& value) {
  if (const auto* found = std::get_if<std::string>(&value)) return *found;
  bug("a field that should be text is none");
}

std::size_t Records::column(std::string_view key) const {
  const auto found = std::ranges::find(columns, key, &ColumnInfo::key);
  if (found == columns.end()) bug("no column " + std::string(key));
  return static_cast<std::size_t>(found - columns.begin());
}

bool has_column(const Records& table, std::string_view key) {
  return std::ranges::find(table.columns, key, &ColumnInfo::key) != table.columns.end();
}

std::string exact_field(const Value& value, const char* undefined) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&value)) return exact_text(*number);
  return undefined;
}

std::string exact_field(const Value& value) {
  return exact_field(value, "");
}

std::string RowFields::text(std::string_view key) const {
  return exact_field((*this)[key]);
}

Value text_or_none(const std::string& text) {
  return text.empty() ? Value() : Value(text);
}

std::vector<std::string> distinct(const Records& records, std::string_view key) {
  std::vector<std::string> out;
  if (records.rows.empty()) return out;
  const std::size_t column = records.column(key);
  const Value* last = nullptr;
  std::set<std::string> seen;
  for (const std::vector<Value>& row : records.rows) {
    const Value& value = row[column];
    // Rows come in runs: most are known without making their text.
    if (std::holds_alternative<std::monostate>(value) || (last != nullptr && *last == value)) continue;
    last = &value;
    if (const auto [text, added] = seen.insert(exact_field(value, "")); added) out.push_back(*text);
  }
  return out;
}

void drop_empty_columns(Records& records) {
  for (std::size_t i = records.columns.size(); i-- > 0;) {
    const bool empty = std::ranges::all_of(
        records.rows, [&](const auto& row) { return std::holds_alternative<std::monostate>(row[i]); });
    if (!empty) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    records.columns.erase(records.columns.begin() + at);
    for (auto& row : records.rows) row.erase(row.begin() + at);
  }
}

void write_csv(std::ostream& out, const Records& records) {
  const char* separator = "";
  for (const ColumnInfo& column : records.columns) {
    out << separator << csv_field(column.key);
    separator = ",";
  }
  out << '\n';
  for (const std::vector<Value>& row : records.rows) {
    separator = "";
    for (const Value& value : row) {
      const auto* words = std::get_if<std::string>(&value);
      out << separator << csv_field(words != nullptr ? no_formula(*words) : exact_field(value, ""));
      separator = ",";
    }
    out << '\n';
  }
}

bool is_formula(std::string_view text) {
  const std::string_view rest = text.substr(std::min(text.find_first_not_of('\''), text.size()));
  return !rest.empty() && std::string_view("=+-@\t\r").find(rest[0]) != std::string_view::npos &&
         !number_of<double>(rest);
}

std::string csv_text(const Records& records) {
  std::ostringstream text;
  write_csv(text, records);
  return std::move(text).str();
}

void write_jsonl(std::ostream& out, const Records& records) {
  for (const std::vector<Value>& row : records.rows) out << json_object(records.columns, row) << '\n';
}

void write_md(std::ostream& out, const Records& records) {
  std::string rule;
  for (std::size_t i = 0; i < records.columns.size(); ++i) {
    out << "| " << records.columns[i].key << ' ';
    const bool text = records.rows.empty() || std::holds_alternative<std::string>(records.rows.front()[i]);
    rule += text ? "| --- " : "| ---: ";
  }
  out << "|\n" << rule << "|\n";
  for (const std::vector<Value>& row : records.rows) {
    for (const Value& value : row) out << "| " << md_field(exact_field(value, "-")) << ' ';
    out << "|\n";
  }
}

std::string json_field(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return json_string(*text);
  if (const auto* real = std::get_if<double>(&value); real != nullptr && *real == 0 && std::signbit(*real))
    return "-0.0";  // readers of JSON take -0 for a whole number, which has no sign
  return exact_field(value, "null");
}

std::vector<std::string> json_objects(const Records& records) {
  std::vector<std::string> out;
  for (const std::vector<Value>& row : records.rows) out.push_back(json_object(records.columns, row));
  return out;
}

std::string json_list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? ", " : "") + json_string(item);
  return text + ']';
}

std::string json_lines_list(const std::vector<std::string>& items, const std::string& indent) {
  if (items.empty()) return "[]";
  std::string text = "[\n";
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += indent + "  " + items[i] + (i + 1 < items.size() ? ",\n" : "\n");
  }
  return text + indent + ']';
}

}  // namespace kvsim::analysis
