#pragma once
/// Records of named fields as text for machines, whatever they speak of. Numbers are printed shortest-exact,
/// so equal results are equal bytes. Failures of a stream are the caller's to look for.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace kvsim::analysis {

/// A field; monostate: undefined.
using Value = std::variant<std::monostate, std::string, std::uint64_t, double>;

/// A count or a real number; nothing if undefined or text.
std::optional<double> number(const Value& value);
/// What is there, whole numbers as counts, or undefined.
template <class T>
Value value_of(const std::optional<T>& field) {
  if (!field) return {};
  if constexpr (std::is_integral_v<T>)
    return std::uint64_t{*field};
  else
    return *field;
}
/// Throws Error(bug) if it is none.
const std::string& text(const Value& value);
/// The quotient; undefined over nothing.
inline Value ratio(double part, double whole) {
  return whole == 0 ? Value() : Value(part / whole);
}

/// What a column is, told once for every export and for the documentation.
struct ColumnInfo {
  std::string key{}, unit{}, description{};
};

/// A tidy table.
struct Records {
  std::vector<ColumnInfo> columns{};
  std::vector<std::vector<Value>> rows{};  ///< one field per column

  /// Index of a column. Throws Error(bug).
  std::size_t column(std::string_view key) const;
};

/// A row of a table, its fields by the keys of their columns. A key that no column has is Error(bug).
class RowFields {
 public:
  RowFields(const Records& table, std::size_t row) : RowFields(table, table.rows[row]) {}
  RowFields(const Records& table, const std::vector<Value>& row) : table_(&table), row_(&row) {}

  const Value& operator[](std::string_view key) const { return (*row_)[table_->column(key)]; }
  /// As exact text, for names may look like numbers; empty: undefined.
  std::string text(std::string_view key) const;
  std::optional<double> number(std::string_view key) const { return analysis::number((*this)[key]); }

 private:
  const Records* table_;
  const std::vector<Value>* row_;
};

/// Several tables belong together in the folder of a study.
struct NamedTable {
  std::string name{};
  Records records{};
};

/// Whether a table has a column of this key; tables of older versions lack some.
bool has_column(const Records& table, std::string_view key);

/// The exact text of a field; `undefined` for undefined.
std::string exact_field(const Value& value, const char* undefined);
/// The same, empty for undefined.
std::string exact_field(const Value& value);
/// Undefined for an empty text.
Value text_or_none(const std::string& text);

/// The exact texts of a column's different values, in order of appearance; undefined is none of them. A table
/// without rows needs no such column.
std::vector<std::string> distinct(const Records& records, std::string_view key);

/// Erases the columns in which every field is undefined.
void drop_empty_columns(Records& records);

/// RFC 4180 under a line of keys; undefined is empty.
void write_csv(std::ostream& out, const Records& records);
/// Whether a text of a csv file, behind apostrophes, begins as formulas of spreadsheets do and is no number.
bool is_formula(std::string_view text);
std::string csv_text(const Records& records);
/// One object per line; undefined is null.
void write_jsonl(std::ostream& out, const Records& records);
/// A GitHub table; undefined is "-".
void write_md(std::ostream& out, const Records& records);

// Parts of a json document.
/// Undefined is null.
std::string json_field(const Value& value);
/// One object per row, on one line each.
std::vector<std::string> json_objects(const Records& records);
/// ["a", "b"].
std::string json_list(const std::vector<std::string>& items);
/// Lines of `items`, one each, inside brackets.
std::string json_lines_list(const std::vector<std::string>& items, const std::string& indent);

}  // namespace kvsim::analysis
