#pragma once
/// Lines of a csv file in ASCII by the names of their columns. Fields may stand in double quotes.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/quoted.hpp"

namespace kvsim::requests {

class CsvColumns {
 public:
  struct Column {
    std::string_view name;
    bool required = true;
  };
  explicit CsvColumns(std::vector<Column> wanted) : wanted_(std::move(wanted)) {}

  /// Throws Error(input) at `where` for a column that is missing or there twice.
  void read_header(std::string_view line, const std::string& where);
  /// Throws Error(input) for a line of another number of fields.
  void read(std::string_view line, const std::string& where);

  bool has(std::size_t column) const { return places_[column] >= 0; }
  /// The field of the line that was read last, without quotes.
  std::string_view text(std::size_t column) const {
    return fields_[static_cast<std::size_t>(places_[column])];
  }
  /// Throws Error(input) for what is no number of this type.
  template <class T>
  T number(std::size_t column, const std::string& where) const {
    const auto value = number_of<T>(text(column));
    if (!value)
      input_error(std::string(wanted_[column].name) + " is " + in_quotes(text(column)) +
                      (std::is_integral_v<T> ? ", no whole number from 0" : ", no number"),
                  where);
    return *value;
  }

 private:
  void split_fields(std::string_view line, const std::string& where);

  std::vector<Column> wanted_;
  std::vector<int> places_;  ///< of the wanted columns; -1: the file has it not
  std::size_t columns_ = 0;
  std::vector<std::string_view> fields_;
};

}  // namespace kvsim::requests
