#pragma once
/// Tables whose columns each say once how they are called, what they mean and what they read of a row, and
/// the columns that people see of such rows.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "analysis/results/text_table.hpp"

namespace kvsim::analysis {

inline Value as_field(Value value) {
  return value;
}
inline Value as_field(std::string text) {
  return text;
}
inline Value as_field(const char* text) {
  return std::string(text);
}
Value as_field(std::unsigned_integral auto count) {
  return std::uint64_t{count};
}
/// Undefined for what is not finite.
inline Value as_field(double number) {
  return std::isfinite(number) ? Value(number) : Value();
}
template <class T>
Value as_field(const std::optional<T>& field) {
  return field ? as_field(*field) : Value();
}

template <class Row>
struct Column {
  ColumnInfo info;
  std::function<Value(const Row&)> get;

  /// `read`: a member of rows, or a function of one; what it returns becomes a field by as_field().
  template <class Read>
  Column(ColumnInfo described, Read read)
      : info(std::move(described)),
        get([read](const Row& row) { return as_field(std::invoke(read, row)); }) {}
  template <class Read>
  Column(std::string key, std::string unit, std::string description, Read read)
      : Column(ColumnInfo{std::move(key), std::move(unit), std::move(description)}, read) {}
};
template <class Row>
using Columns = std::vector<Column<Row>>;

template <class Row>
Columns<Row> operator+(Columns<Row> first, const Columns<Row>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

template <class Row>
std::vector<ColumnInfo> infos(const Columns<Row>& columns) {
  std::vector<ColumnInfo> out;
  for (const Column<Row>& column : columns) out.push_back(column.info);
  return out;
}

template <class Row>
Records table_of(const Columns<Row>& columns, const std::vector<Row>& rows) {
  Records out{infos(columns), {}};
  out.rows.reserve(rows.size());
  for (const Row& row : rows)
    for (std::vector<Value>& fields = out.rows.emplace_back(); const Column<Row>& column : columns)
      fields.push_back(column.get(row));
  return out;
}

/// A column for people.
template <class Row>
struct Shown {
  std::string heading;
  Align align;
  std::function<std::string(const Row&)> text;
  bool setting = false;  ///< where all rows agree it is no column, but `agreed(heading, text)`
};

template <class Row, class Agreed>
TextTable shown_table(const std::vector<Shown<Row>>& columns, const std::vector<Row>& rows, Agreed agreed) {
  TextTable table;
  std::vector<const Shown<Row>*> kept;
  for (const Shown<Row>& column : columns) {
    const auto as_first = [&](const Row& row) { return column.text(row) == column.text(rows.front()); };
    if (column.setting && std::ranges::all_of(rows, as_first)) {
      agreed(column.heading, column.text(rows.front()));
      continue;
    }
    table.add_column(column.heading, column.align);
    kept.push_back(&column);
  }
  for (const Row& row : rows) {
    std::vector<std::string> fields;
    for (const Shown<Row>* column : kept) fields.push_back(column->text(row));
    table.add_row(fields);
  }
  return table;
}

}  // namespace kvsim::analysis
