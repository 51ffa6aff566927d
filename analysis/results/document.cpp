#include "analysis/results/document.hpp"

#include <algorithm>
#include <map>
#include <ostream>

#include "analysis/results/json_string.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

std::string console_text(const Value& value, const ColumnInfo& column) {
  if (const auto n = number(value); n && column.unit == "bytes")
    return bytes_text(static_cast<std::uint64_t>(*n + 0.5));
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&value)) return rounded_text(*number);
  return "-";
}

std::string spaced(std::string key) {
  for (char& c : key)
    if (c == '_') c = ' ';
  return key;
}

bool constant(const Records& records, std::size_t column) {
  for (const std::vector<Value>& row : records.rows)
    if (row[column] != records.rows.front()[column]) return false;
  return true;
}

Align alignment(const Records& records, std::size_t column) {
  for (const std::vector<Value>& row : records.rows) {
    if (std::holds_alternative<std::string>(row[column])) return Align::left;
    if (std::holds_alternative<double>(row[column]) && records.columns[column].unit != "bytes")
      return Align::point;
  }
  return Align::right;
}

/// Policies by a label that tells them apart, instead of all their parameters.
Records labelled(const Records& records) {
  if (!has_column(records, "policy") || !has_column(records, "params")) return records;
  Records out = records;
  const std::size_t policy = records.column("policy"), params = records.column("params");
  std::map<std::string, std::string> labels = policy_labels(records);
  for (std::vector<Value>& row : out.rows) {
    // Without parameters the name is the label.
    if (const auto* all = std::get_if<std::string>(&row[params])) row[policy] = labels[*all];
    row.erase(row.begin() + static_cast<std::ptrdiff_t>(params));
  }
  out.columns.erase(out.columns.begin() + static_cast<std::ptrdiff_t>(params));
  return out;
}

/// Whether a row is the first of those that differ from `policy` on, and the next of them is not as good.
bool best_of_place(const Records& records, std::size_t row) {
  const auto policy = static_cast<std::ptrdiff_t>(records.column("policy"));
  const auto same = [&](std::size_t other, std::ptrdiff_t from, std::ptrdiff_t to) {
    const std::vector<Value>&a = records.rows[row], &b = records.rows[other];
    return std::equal(a.begin() + from, a.begin() + to, b.begin() + from);
  };
  const auto all = static_cast<std::ptrdiff_t>(records.columns.size());
  return (row == 0 || !same(row - 1, 0, policy)) && row + 1 < records.rows.size() &&
         same(row + 1, 0, policy) && !same(row + 1, policy + 1, all);
}

void write_table(std::ostream& out, const Document& document) {
  const Records records = labelled(document.records);
  std::vector<std::size_t> shown;
  bool told = false;
  for (std::size_t i = 0; i < records.columns.size(); ++i) {
    // A single row has nothing to compare: all of it is shown as a row, but for the trace.
    const bool above = !records.rows.empty() && constant(records, i) &&
                       (records.rows.size() > 1 || records.columns[i].key == "trace");
    if (!above) {
      shown.push_back(i);
      continue;
    }
    const std::string value = console_text(records.rows.front()[i], records.columns[i]);
    if (value.empty()) continue;
    out << spaced(records.columns[i].key) << ' ' << value << '\n';
    told = true;
  }
  if (told && !shown.empty()) out << '\n';
  TextTable table;
  for (const std::size_t i : shown) table.add_column(spaced(records.columns[i].key), alignment(records, i));
  for (std::size_t n = 0; n < records.rows.size(); ++n) {
    std::vector<std::string> fields;
    for (const std::size_t i : shown) fields.push_back(console_text(records.rows[n][i], records.columns[i]));
    table.add_row(fields, document.best_first && best_of_place(records, n));
  }
  if (!shown.empty()) {
    table.print(out);
  }
  if (!document.notes.empty()) out << '\n';
  for (const std::string& note : document.notes) out << note << '\n';
}

std::string json_trace(const TraceId& trace) {
  return "{\"trace\": " + json_string(trace.name) + ", \"content_sha256\": " +
         (trace.content_sha256.empty() ? "null" : json_string(trace.content_sha256)) +
         ", \"prompt\": " + std::to_string(trace.prompt) + ", \"decode\": " + std::to_string(trace.decode) +
         (trace.cut.empty() ? "" : ", \"cut\": " + json_string(trace.cut)) + '}';
}

std::string json_columns(const std::vector<ColumnInfo>& columns) {
  std::vector<std::string> out;
  for (const ColumnInfo& column : columns)
    out.push_back("{\"key\": " + json_string(column.key) + ", \"unit\": " + json_string(column.unit) +
                  ", \"description\": " + json_string(column.description) + '}');
  return json_lines_list(out, "  ");
}

void write_json(std::ostream& out, const Document& document) {
  const bool replayed = !document.loop.empty();
  std::vector<std::string> traces;
  for (const TraceId& trace : document.traces) traces.push_back(json_trace(trace));
  out << "{\n  \"schema_version\": " << kSchemaVersion << ",\n  \"inputs\": {\n    "
      << (replayed ? "\"loop\": " + json_string(document.loop)
                   : "\"analysis\": " + json_string(document.analysis))
      << ",\n    \"traces\": " << json_lines_list(traces, "    ");
  for (const auto& [name, items] : document.lists)
    out << ",\n    " << json_string(name) << ": " << json_list(items);
  for (const auto& [name, value] : document.settings)
    out << ",\n    " << json_string(name) << ": " << json_field(value);
  out << "\n  },\n";
  if (!replayed) out << "  \"columns\": " << json_columns(document.records.columns) << ",\n";
  out << "  \"results\": " << json_lines_list(json_objects(document.records), "  ") << "\n}\n";
}

void write_for_people(std::ostream& out, const Document& document) {
  if (document.console)
    document.console(out);
  else
    write_table(out, document);
  if (!document.caveat.empty()) out << document.caveat << '\n';
}

void write_page(std::ostream& out, const Document& document) {
  if (document.page) return document.page(out);
  write_md(out, document.records);
  if (!document.caveat.empty()) out << '\n' << document.caveat << '\n';
}

}  // namespace

void write_document(std::ostream& out, Format format, const Document& document) {
  if (!document.tables.empty()) bug("several tables in one text");
  switch (format) {
    case Format::table:
      return write_for_people(out, document);
    case Format::csv:
      return write_csv(out, document.records);
    case Format::json:
      return write_json(out, document);
    case Format::jsonl:
      return write_jsonl(out, document.records);
    case Format::md:
      return write_page(out, document);
    case Format::h5:
      break;
  }
  bug("not a format of text");
}

}  // namespace kvsim::analysis
