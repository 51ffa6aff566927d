#include "analysis/results/reading/read_tables.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include "analysis/results/document.hpp"
#include "analysis/results/hdf5_export.hpp"
#include "analysis/results/reading/column_types.hpp"
#include "analysis/results/rows.hpp"
#include "sim/base/csv_records.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/format/hdf5_input.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

/// Results of `kvsim replay`, which no text format but json describes.
void describe_rows(Records& records) {
  const std::vector<ColumnInfo> known = row_columns();
  const auto is_known = [&](const ColumnInfo& column) {
    return std::ranges::find_if(known, [&](const ColumnInfo& other) { return other.key == column.key; });
  };
  for (const ColumnInfo& column : records.columns)
    if (is_known(column) == known.end()) return;
  for (ColumnInfo& column : records.columns) column = *is_known(column);
}

/// Of a file of text.
Records parse_results(std::string_view text, const std::string& path) {
  // The json documents of kvsim begin with a line of their own; a row of json lines is one line.
  if (text.starts_with("{\n")) return parse_json_document(text, path);
  if (text.starts_with('{')) return parse_json_lines(text, path);
  if (text.starts_with("PAR1"))
    input_error("is Parquet, which kvsim does not read", path,
                "In Python: pandas.read_parquet(PATH).to_csv('rows.csv', index=False)");
  const bool names_columns = text.substr(0, text.find('\n')).find(',') != std::string::npos;
  if (!names_columns || text.starts_with('|'))
    input_error("is no result of kvsim as csv, json, jsonl or HDF5", path,
                "Tables for people (--format table, md) are rounded and not read back.");
  return parse_csv(text, path);
}

/// Units and descriptions where `records` has none, from those that columns.csv has for the table.
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

std::vector<NamedTable> read_study(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failed;
  for (const Scope scope : {Scope::all, Scope::layer, Scope::head, Scope::step})
    if (fs::is_regular_file(folder / results_file(scope), failed))
      files.push_back(folder / results_file(scope));
  for (const fs::path& path : entries_of(folder / "tables", failed))
    if (const std::string name = path.filename().string();
        name.ends_with(".csv") || name.ends_with(".csv.gz"))
      files.push_back(path);
  if (failed && failed != std::errc::no_such_file_or_directory)
    input_error("cannot be listed: " + failed.message(), (folder / "tables").string());
  if (files.empty())
    input_error("holds neither results.csv nor tables", folder.string(), "Is it the folder of a study?");
  std::vector<NamedTable> out;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    out.push_back({name.substr(0, name.find('.')), read_csv(file.string())});
  }
  if (!fs::is_regular_file(folder / "columns.csv", failed)) return out;
  const Records descriptions = read_csv((folder / "columns.csv").string(), description_columns());
  for (NamedTable& table : out) describe(table.records, table.name, descriptions);
  return out;
}

}  // namespace

std::vector<NamedTable> read_tables(const std::string& path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return read_study(path);
  std::string content = read_file(path, kMostTableBytes);
  if (is_gzip(content)) content = gunzipped(content, kMostTableBytes, path);
  if (content.starts_with("\x89HDF")) return read_hdf5_tables(path);
  NamedTable table{"results", parse_results(content, path)};
  describe_rows(table.records);
  return {std::move(table)};
}

std::string results_file(Scope scope) {
  return scope == Scope::all ? "results.csv" : std::string("results-") + scope_name(scope) + ".csv.gz";
}

bool is_results_table(std::string_view table) {
  return table == "results" || table.starts_with("results-");
}

void append_rows(Records& all, Records more) {
  std::vector<std::size_t> places;
  for (const ColumnInfo& column : all.columns) places.push_back(more.column(column.key));
  for (std::vector<Value>& row : more.rows) {
    std::vector<Value>& out = all.rows.emplace_back();
    out.reserve(places.size());
    for (const std::size_t place : places) out.push_back(std::move(row[place]));
  }
}

std::vector<ColumnInfo> description_columns() {
  return {{"table", "", "results, results-layer and so on, or a table of tables/"},
          {"key", "", "column"},
          {"unit", "", "of its numbers"},
          {"description", "", "what it says"}};
}

namespace {

/// Records as write_csv wrote them: what it made harmless to spreadsheets is as it was.
class Scanner : public CsvRecords {
 public:
  using CsvRecords::CsvRecords;

  std::vector<std::string> record() {
    std::vector<std::string> fields = CsvRecords::record();
    for (std::string& field : fields)
      if (field.starts_with('\'') && is_formula(field)) field.erase(0, 1);
    return fields;
  }
};

/// What the columns hold, found before anything of the rows is kept: a table of many rows is not held twice.
struct Outline {
  std::vector<std::string> keys{};
  std::vector<bool> holds_text{};  ///< by column: some field is no number
  std::size_t rows = 0;
};

std::vector<std::string> names_of_columns(Scanner& scanner, const std::string& where) {
  if (scanner.done()) input_error("is empty: not even names of columns", where);
  std::vector<std::string> keys = scanner.record();
  std::set<std::string> seen;
  for (const std::string& key : keys) {
    if (key.empty()) input_error("a column without a name", where + ":1");
    if (!seen.insert(key).second) input_error("two columns called " + in_quotes(key), where + ":1");
  }
  return keys;
}

Outline outline_of(std::string_view text, const std::string& where) {
  Scanner scanner(text, where);
  Outline out;
  out.keys = names_of_columns(scanner, where);
  out.holds_text.resize(out.keys.size());
  for (; !scanner.done(); ++out.rows) {
    const std::vector<std::string> fields = scanner.record();
    if (fields.size() != out.keys.size())
      input_error(std::to_string(fields.size()) + " fields where there are " +
                      std::to_string(out.keys.size()) + " columns",
                  where + ":" + std::to_string(scanner.line()), "Is the file complete?");
    for (std::size_t c = 0; c < fields.size(); ++c)
      if (!fields[c].empty() && !out.holds_text[c]) out.holds_text[c] = !number_field(fields[c]);
  }
  return out;
}

}  // namespace

Records parse_csv(std::string_view text, const std::string& where) {
  const Outline outline = outline_of(text, where);
  Records out;
  std::vector<bool> is_text;
  for (std::size_t c = 0; c < outline.keys.size(); ++c) {
    out.columns.push_back({outline.keys[c], "", ""});
    is_text.push_back(outline.holds_text[c] || is_text_key(outline.keys[c]));
  }
  Scanner scanner(text, where);
  scanner.record();  // names
  out.rows.reserve(outline.rows);
  while (!scanner.done()) {
    std::vector<Value>& row = out.rows.emplace_back();
    row.reserve(outline.keys.size());
    std::vector<std::string> fields = scanner.record();
    for (std::size_t c = 0; c < fields.size(); ++c)
      row.push_back(is_text[c] || fields[c].empty() ? text_field(std::move(fields[c]))
                                                    : *number_field(fields[c]));
  }
  return out;
}

Records read_csv(const std::string& path, const std::vector<ColumnInfo>& expected) {
  std::string text = read_file(path, kMostTableBytes);
  if (is_gzip(text)) text = gunzipped(text, kMostTableBytes, path);
  Records out = parse_csv(text, path);
  expect_columns(out, expected, path);
  return out;
}

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

namespace {

bool is_results(const hdf5::InputFile& file) {
  return file.root().has_attribute("format") && file.root().text("format") == kResultsFormat;
}

/// Of a comma list of names.
std::vector<std::string> names(const std::string& list) {
  std::istringstream rest(list);
  std::vector<std::string> out;
  for (std::string name; std::getline(rest, name, ',');) out.push_back(name);
  return out;
}

std::vector<Value> read_texts(const hdf5::InputDataset& dataset) {
  std::vector<Value> out;
  for (std::string& text : dataset.read_texts()) out.push_back(text_field(std::move(text)));
  return out;
}

template <class T>
std::vector<T> read_list(const hdf5::InputDataset& dataset) {
  std::vector<T> out(dataset.dims().front());
  dataset.read_all(out.data());
  return out;
}

std::vector<Value> read_numbers(const hdf5::InputDataset& dataset) {
  std::vector<Value> out;
  if (dataset.type() == hdf5::Type::u64) {
    for (const std::uint64_t count : read_list<std::uint64_t>(dataset)) out.emplace_back(count);
    return out;
  }
  for (const double number : read_list<double>(dataset)) {
    if (std::isinf(number)) input_error("holds a number that is not finite", dataset.where());
    out.push_back(std::isnan(number) ? Value() : Value(number));
  }
  return out;
}

Records read_table(const hdf5::InputGroup& group) {
  Records out;
  for (const std::string& key : names(group.text("columns"))) {
    const bool texts = group.holds_texts(key);
    const hdf5::InputDataset dataset =
        texts ? group.texts(key) : group.dataset(key, {hdf5::Type::u64, hdf5::Type::f64}, 1);
    std::vector<Value> fields = texts ? read_texts(dataset) : read_numbers(dataset);
    if (out.columns.empty()) out.rows.resize(fields.size());
    if (fields.size() != out.rows.size())
      input_error("has " + std::to_string(fields.size()) + " rows, unlike the first column", dataset.where());
    out.columns.push_back({key, dataset.text("unit"), dataset.text("description")});
    for (std::size_t row = 0; row < fields.size(); ++row) out.rows[row].push_back(std::move(fields[row]));
  }
  return out;
}

}  // namespace

bool holds_hdf5_results(const std::string& path) {
  return begins_with(path, "\x89HDF") && is_results(hdf5::InputFile(path));
}

std::vector<NamedTable> read_hdf5_tables(const std::string& path) {
  const hdf5::InputFile file(path);
  if (!is_results(file))
    input_error("is HDF5 that holds no results", path,
                "A trace is read by kvsim replay and kvsim trace, decisions by kvsim plot timeline.");
  const hdf5::InputGroup& root = file.root();
  if (!root.flag("complete")) input_error("is incomplete: its writer did not finish", path);
  if (root.count("schema_major", 0xffff) != kSchemaVersion)
    input_error("is of another schema version than " + std::to_string(kSchemaVersion), path,
                "Write it anew with this version of kvsim.");
  std::vector<NamedTable> out;
  for (const std::string& name : names(root.has_attribute("tables") ? root.text("tables") : "results"))
    if (name != kTracesTable) out.push_back({name, read_table(root.group(name))});
  return out;
}

}  // namespace kvsim::analysis
