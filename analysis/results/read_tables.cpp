#include "analysis/results/read_tables.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "analysis/results/read_csv.hpp"
#include "analysis/results/rows.hpp"
#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::uint64_t kMostBytes = 1ULL << 30;
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
    if (field == nullptr)
      input_error("has no " + kvsim::quoted(column.key) + ", unlike the first row", where);
    row.push_back(value_of_json(*field, object, column.key));
  }
  if (object.raw().size() != row.size()) input_error("has members that the first row has not", where);
  out.rows.push_back(std::move(row));
}

Records parse_jsonl(std::string_view text, const std::string& path) {
  Records out;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string where = path + ":" + std::to_string(line);
    add_row(out, parse_strict_json(text.substr(0, end), where, kMostValuesOfLine), where);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

Records parse_document(std::string_view text, const std::string& path) {
  const json::value document = parse_strict_json(text, path, kMostValues);
  Records out;
  for (const json::value& row : JsonObject(document, path).array("results"))
    add_row(out, row, path + ", row " + std::to_string(out.rows.size() + 1));
  return out;
}

/// Results of `kvsim replay`, which no text format but json describes.
void describe_rows(Records& records) {
  const std::vector<ColumnInfo> known = records_of({}).columns;
  const auto is_known = [&](const ColumnInfo& column) {
    return std::find_if(known.begin(), known.end(),
                        [&](const ColumnInfo& other) { return other.key == column.key; });
  };
  for (const ColumnInfo& column : records.columns)
    if (is_known(column) == known.end()) return;
  for (ColumnInfo& column : records.columns) column = *is_known(column);
}

Records parse_results(const std::string& path) {
  const std::string text = read_file(path, kMostBytes);
  if (text.starts_with("\x89HDF"))
    input_error("is HDF5, which is not read back", path, "Results are read as csv, json or jsonl.");
  // The json documents of kvsim begin with a line of their own; a row of json lines is one line.
  if (text.starts_with("{\n")) return parse_document(text, path);
  if (text.starts_with('{')) return parse_jsonl(text, path);
  const bool names_columns = text.substr(0, text.find('\n')).find(',') != std::string::npos;
  if (!names_columns || text.starts_with('|'))
    input_error("is no result of kvsim as csv, json or jsonl", path,
                "Tables for people (--format table, md) are rounded and not read back.");
  return parse_csv(text, path);
}

std::vector<NamedTable> read_study(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failed;
  if (fs::is_regular_file(folder / "results.csv", failed)) files.push_back(folder / "results.csv");
  std::vector<fs::path> tables;
  for (fs::directory_iterator at(folder / "tables", failed), end; !failed && at != end; at.increment(failed))
    if (at->path().extension() == ".csv") tables.push_back(at->path());
  std::sort(tables.begin(), tables.end());
  files.insert(files.end(), tables.begin(), tables.end());
  if (files.empty())
    input_error("holds neither results.csv nor tables", folder.string(), "Is it the folder of a study?");
  std::vector<NamedTable> out;
  for (const fs::path& file : files) out.push_back({file.stem().string(), read_csv(file.string())});
  if (!fs::is_regular_file(folder / "columns.csv", failed)) return out;
  const Records descriptions = read_csv((folder / "columns.csv").string(), description_columns());
  for (NamedTable& table : out) describe(table.records, table.name, descriptions);
  return out;
}

}  // namespace

std::vector<NamedTable> read_tables(const std::string& path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return read_study(path);
  NamedTable table{"results", parse_results(path)};
  describe_rows(table.records);
  return {std::move(table)};
}

std::vector<ColumnInfo> description_columns() {
  return {{"table", "", "results, or a table of tables/"},
          {"key", "", "column"},
          {"unit", "", "of its numbers"},
          {"description", "", "what it says"}};
}

void describe(Records& records, std::string_view table, const Records& descriptions) {
  const auto field = [&](const std::vector<Value>& row, const char* key) {
    return exact_field(row[descriptions.column(key)], "");
  };
  for (const std::vector<Value>& row : descriptions.rows) {
    if (field(row, "table") != table) continue;
    for (ColumnInfo& column : records.columns)
      if (column.key == field(row, "key") && column.description.empty())
        column = {column.key, field(row, "unit"), field(row, "description")};
  }
}

}  // namespace kvsim::analysis
