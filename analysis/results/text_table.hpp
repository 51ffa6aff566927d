#pragma once
/// Aligned columns for people.
#include <iosfwd>
#include <string>
#include <vector>

namespace kvsim::analysis {

enum class Align { left, right, point };  ///< point: decimal points under each other

/// Columns of text under stacked headings: "attention loss" stands on two lines.
class TextTable {
 public:
  void add_column(const std::string& heading, Align align) { columns_.push_back({heading, align, {}}); }
  /// One field per column.
  void add_row(const std::vector<std::string>& fields);
  /// Prints headings; rows follow with print_row.
  void print_head(std::ostream& out);
  void print_row(std::ostream& out, std::size_t row) const;

 private:
  struct Column {
    std::string heading;
    Align align;
    std::vector<std::string> fields;
    std::vector<std::string> heading_lines{};
    std::size_t width = 0, tail = 0;  ///< tail: longest part from the decimal point on

    void lay_out();
    std::size_t tail_of(const std::string& field) const;
    std::string padded_heading(const std::string& line) const;
    std::string padded(const std::string& field) const;
  };

  std::vector<Column> columns_;
};

}  // namespace kvsim::analysis
