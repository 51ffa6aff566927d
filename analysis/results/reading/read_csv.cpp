#include "analysis/results/reading/read_csv.hpp"

#include <set>

#include "analysis/results/reading/column_types.hpp"
#include "sim/base/csv_records.hpp"
#include "sim/base/error.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/read_file.hpp"

namespace kvsim::analysis {
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

}  // namespace kvsim::analysis
