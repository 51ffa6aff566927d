#include "sim/base/csv_records.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kMostFields = 1000;

}  // namespace

CsvRecords::CsvRecords(std::string_view text, const std::string& where) : text_(text), where_(where) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

std::vector<std::string> CsvRecords::record() {
  first_line_ = next_line_;
  std::vector<std::string> fields;
  do {
    if (fields.size() == kMostFields) fail("more than " + std::to_string(kMostFields) + " fields");
    fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted_field() : plain_field());
  } while (skip(","));
  if (!done() && !skip("\n") && !skip("\r\n")) fail("text after a closing quote");
  ++next_line_;
  return fields;
}

std::string CsvRecords::plain_field() {
  const std::size_t end = std::min(text_.find_first_of(",\"\r\n", at_), text_.size());
  if (end < text_.size() && text_[end] == '"') fail("a quote inside a field that does not begin with one");
  if (end < text_.size() && text_[end] == '\r' && !text_.substr(end).starts_with("\r\n"))
    fail("a carriage return without a line feed");
  const std::string_view field = text_.substr(at_, end - at_);
  at_ = end;
  return std::string(field);
}

std::string CsvRecords::quoted_field() {
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

bool CsvRecords::skip(std::string_view mark) {
  if (!text_.substr(at_).starts_with(mark)) return false;
  at_ += mark.size();
  return true;
}

void CsvRecords::fail(const std::string& what) const {
  input_error(what, where_ + ":" + std::to_string(first_line_));
}

}  // namespace kvsim
