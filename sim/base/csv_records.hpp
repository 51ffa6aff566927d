#pragma once
/// The records of a csv text (RFC 4180) one after the other: fields with commas between, in double quotes
/// where they hold commas, quotes or line ends.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

class CsvRecords {
 public:
  /// Both must outlive this; `where` is the file in messages. A byte order mark is passed over.
  CsvRecords(std::string_view text, const std::string& where);

  bool done() const { return at_ == text_.size(); }
  /// Of the record read last, from 1.
  std::size_t line() const { return first_line_; }
  /// Throws Error(input) at `where`:line for what is no csv.
  std::vector<std::string> record();

 private:
  std::string plain_field();
  std::string quoted_field();
  bool skip(std::string_view mark);
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0, first_line_ = 1, next_line_ = 1;
};

}  // namespace kvsim
