#include "analysis/tables.hpp"

#include <algorithm>
#include <ostream>

#include "analysis/json_string.hpp"
#include "analysis/numbers.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

/// The exact text of a field; `undefined` for null.
std::string exact_field(const Value& value, const char* undefined) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&value)) return exact_text(*number);
  return undefined;
}

/// RFC 4180: quoted when it must be, quotes doubled.
std::string csv_field(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
  return '"' + text + '"';
}

void write_csv(std::ostream& out, const std::vector<Row>& rows) {
  const char* separator = "";
  for (const Column& column : columns()) {
    out << separator << column.key;
    separator = ",";
  }
  out << '\n';
  for (const Row& row : rows) {
    separator = "";
    for (const Column& column : columns()) {
      out << separator << csv_field(exact_field(column.get(row), ""));
      separator = ",";
    }
    out << '\n';
  }
}

std::string json_field(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return json_string(*text);
  return exact_field(value, "null");
}

std::string json_object(const Row& row) {
  std::string text = "{";
  for (const Column& column : columns()) {
    if (text.size() > 1) text += ", ";
    text += json_string(column.key) + ": " + json_field(column.get(row));
  }
  return text + '}';
}

std::string json_list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? ", " : "") + json_string(item);
  return text + ']';
}

std::string json_trace(const Inputs::TraceId& trace) {
  return "{\"trace\": " + json_string(trace.name) + ", \"content_sha256\": " +
         (trace.content_sha256.empty() ? "null" : json_string(trace.content_sha256)) +
         ", \"prompt\": " + std::to_string(trace.prompt) + ", \"decode\": " + std::to_string(trace.decode) +
         '}';
}

/// Lines of `items`, one each, inside brackets.
std::string json_lines_list(const std::vector<std::string>& items, const std::string& indent) {
  if (items.empty()) return "[]";
  std::string text = "[\n";
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += indent + "  " + items[i] + (i + 1 < items.size() ? ",\n" : "\n");
  }
  return text + indent + ']';
}

void write_json(std::ostream& out, const std::vector<Row>& rows, const Inputs& inputs) {
  std::vector<std::string> traces, results;
  for (const Inputs::TraceId& trace : inputs.traces) traces.push_back(json_trace(trace));
  for (const Row& row : rows) results.push_back(json_object(row));
  out << "{\n  \"schema_version\": " << kSchemaVersion << ",\n  \"inputs\": {\n"
      << "    \"loop\": \"open\",\n"
      << "    \"traces\": " << json_lines_list(traces, "    ") << ",\n"
      << "    \"policies\": " << json_list(inputs.policies) << ",\n"
      << "    \"budgets\": " << json_list(inputs.budgets) << ",\n"
      << "    \"scope\": " << json_string(scope_name(inputs.scope)) << ",\n"
      << "    \"seed\": " << inputs.seed << "\n  },\n"
      << "  \"results\": " << json_lines_list(results, "  ") << "\n}\n";
}

void write_jsonl(std::ostream& out, const std::vector<Row>& rows) {
  for (const Row& row : rows) out << json_object(row) << '\n';
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

void write_md(std::ostream& out, const std::vector<Row>& rows) {
  std::string rule;
  for (const Column& column : columns()) {
    out << "| " << column.key << ' ';
    const bool text = rows.empty() || std::holds_alternative<std::string>(column.get(rows[0]));
    rule += text ? "| --- " : "| ---: ";
  }
  out << "|\n" << rule << "|\n";
  for (const Row& row : rows) {
    for (const Column& column : columns()) out << "| " << md_field(exact_field(column.get(row), "-")) << ' ';
    out << "|\n";
  }
  out << '\n' << kOpenLoopNote << '\n';
}

struct NamedFormat {
  const char* name;
  Format format;
};
constexpr NamedFormat kFormats[] = {{"table", Format::table},
                                    {"csv", Format::csv},
                                    {"json", Format::json},
                                    {"jsonl", Format::jsonl},
                                    {"md", Format::md}};

}  // namespace

const char* const kOpenLoopNote =
    "Open loop: each recorded query is answered exactly as the compressed cache would answer it; what that "
    "answer\n"
    "would have changed later is not seen.";

Format parse_format(std::string_view name) {
  std::vector<std::string> known;
  for (const NamedFormat& format : kFormats) {
    if (name == format.name) return format.format;
    known.emplace_back(format.name);
  }
  usage_error("unknown format '" + std::string(name) + "'", "--format", suggestion(name, known));
}

void write_rows(std::ostream& out, Format format, const std::vector<Row>& rows, const Inputs& inputs) {
  switch (format) {
    case Format::table:
      return write_people_table(out, rows);
    case Format::csv:
      return write_csv(out, rows);
    case Format::json:
      return write_json(out, rows, inputs);
    case Format::jsonl:
      return write_jsonl(out, rows);
    case Format::md:
      return write_md(out, rows);
  }
  bug("unknown format");
}

}  // namespace kvsim::analysis
