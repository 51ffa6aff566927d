#include "analysis/results/reading/read_csv.hpp"

#include <algorithm>
#include <set>

#include "analysis/results/formula_text.hpp"
#include "analysis/results/reading/column_types.hpp"
#include "sim/base/error.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/read_file.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostColumns = 1000;

/// Fields of one record after the other.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& where) : text_(text), where_(where) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  }

  bool done() const { return at_ == text_.size(); }
  /// Of the record read last, from 1.
  std::size_t line() const { return first_line_; }

  std::vector<std::string> record() {
    first_line_ = next_line_;
    std::vector<std::string> fields;
    do {
      if (fields.size() == kMostColumns) fail("more than " + std::to_string(kMostColumns) + " fields");
      fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted_field() : plain_field());
      if (fields.back().starts_with('\'') && is_formula(fields.back())) fields.back().erase(0, 1);
    } while (skip(","));
    if (!done() && !skip("\n") && !skip("\r\n")) fail("text after a closing quote");
    ++next_line_;
    return fields;
  }

 private:
  std::string plain_field() {
    const std::size_t end = std::min(text_.find_first_of(",\"\r\n", at_), text_.size());
    if (end < text_.size() && text_[end] == '"') fail("a quote inside a field that does not begin with one");
    if (end < text_.size() && text_[end] == '\r' && !text_.substr(end).starts_with("\r\n"))
      fail("a carriage return without a line feed");
    const std::string_view field = text_.substr(at_, end - at_);
    at_ = end;
    return std::string(field);
  }

  std::string quoted_field() {
    std::string field;
    for (++at_;; ++at_) {  // past the opening quote, or the first of two
      const std::size_t end = text_.find('"', at_);
      if (end == std::string_view::npos) fail("a quote that is never closed");
      field += text_.substr(at_, end - at_);
      at_ = end + 1;
      if (done() || text_[at_] != '"') break;
      field += '"';
    }
    next_line_ += static_cast<std::size_t>(std::count(field.begin(), field.end(), '\n'));
    return field;
  }

  bool skip(std::string_view mark) {
    if (!text_.substr(at_).starts_with(mark)) return false;
    at_ += mark.size();
    return true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    input_error(what, where_ + ":" + std::to_string(first_line_));
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0, first_line_ = 1, next_line_ = 1;
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
