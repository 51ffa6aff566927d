#include "analysis/results/text_table.hpp"

#include <algorithm>
#include <ostream>

namespace kvsim::analysis {
namespace {

/// Characters, not bytes: file names are UTF-8.
std::size_t length(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

void print_line(std::ostream& out, const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (line.empty() ? "" : "  ") + field;
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << '\n';
}

}  // namespace

void TextTable::add_row(const std::vector<std::string>& fields) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::string& field = columns_[i].fields.emplace_back(fields[i]);
    // A row is a line, whatever a model generates.
    std::replace_if(
        field.begin(), field.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  }
}

void TextTable::print_head(std::ostream& out) {
  std::size_t height = 0;
  for (Column& column : columns_) {
    column.lay_out();
    height = std::max(height, column.heading_lines.size());
  }
  for (std::size_t line = 0; line < height; ++line) {
    std::vector<std::string> fields;
    for (const Column& column : columns_) {
      const std::size_t blank = height - column.heading_lines.size();
      fields.push_back(line < blank ? std::string(column.width, ' ')
                                    : column.padded_heading(column.heading_lines[line - blank]));
    }
    print_line(out, fields);
  }
}

void TextTable::print_row(std::ostream& out, std::size_t row) const {
  std::vector<std::string> fields;
  for (const Column& column : columns_) fields.push_back(column.padded(column.fields[row]));
  print_line(out, fields);
}

void TextTable::Column::lay_out() {
  for (std::size_t begin = 0; begin <= heading.size();) {
    const std::size_t end = std::min(heading.find(' ', begin), heading.size());
    heading_lines.push_back(heading.substr(begin, end - begin));
    width = std::max(width, end - begin);
    begin = end + 1;
  }
  for (const std::string& field : fields) tail = std::max(tail, tail_of(field));
  for (const std::string& field : fields) width = std::max(width, length(field) - tail_of(field) + tail);
}

std::size_t TextTable::Column::tail_of(const std::string& field) const {
  const std::size_t point = field.find_first_of(".e");
  return align != Align::point || point == std::string::npos ? 0 : field.size() - point;
}

std::string TextTable::Column::padded_heading(const std::string& line) const {
  const std::string blank(width - line.size(), ' ');
  return align == Align::left ? line + blank : blank + line;
}

std::string TextTable::Column::padded(const std::string& field) const {
  const std::string after(align == Align::left ? width - length(field) : tail - tail_of(field), ' ');
  return std::string(width - length(field) - after.size(), ' ') + field + after;
}

}  // namespace kvsim::analysis
