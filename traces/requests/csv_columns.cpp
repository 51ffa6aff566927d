#include "traces/requests/csv_columns.hpp"

#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::requests {

void CsvColumns::split_fields(std::string_view line, const std::string& where) {
  for (const char c : line)
    if ((c < 0x20 && c != '\t') || c > 0x7e)
      input_error("has a byte that is no printable ASCII", where, "The csv formats of requests are ASCII.");
  fields_.clear();
  std::size_t begin = 0;
  while (true) {
    std::size_t end = begin;
    if (begin < line.size() && line[begin] == '"') {
      const std::size_t close = line.find('"', begin + 1);
      if (close == std::string_view::npos || (close + 1 < line.size() && line[close + 1] != ','))
        input_error("has a quote that is not closed at the end of its field", where);
      fields_.push_back(line.substr(begin + 1, close - begin - 1));
      end = close + 1;
    } else {
      end = std::min(line.find(',', begin), line.size());
      fields_.push_back(trimmed(line.substr(begin, end - begin)));
    }
    if (end >= line.size()) return;
    begin = end + 1;
  }
}

void CsvColumns::read_header(std::string_view line, const std::string& where) {
  split_fields(line, where);
  columns_ = fields_.size();
  places_.clear();
  for (const Column& column : wanted_) {
    int place = -1;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i] != column.name) continue;
      if (place >= 0) input_error("the column " + in_quotes(column.name) + " is there twice", where);
      place = static_cast<int>(i);
    }
    if (place < 0 && column.required)
      input_error("has no column " + in_quotes(column.name), where,
                  suggestion(column.name, {fields_.begin(), fields_.end()}));
    places_.push_back(place);
  }
}

void CsvColumns::read(std::string_view line, const std::string& where) {
  split_fields(line, where);
  if (fields_.size() != columns_)
    input_error(
        "has " + std::to_string(fields_.size()) + " fields under " + std::to_string(columns_) + " columns",
        where);
}

}  // namespace kvsim::requests
