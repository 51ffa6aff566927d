#pragma once
/// A text file of any size line by line, in constant memory. Files in the gzip format are read as the text
/// they hold.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kvsim {

class TextLines {
 public:
  /// Opens a file, or standard input for "-". Throws Error(input) as read_file() does; lines longer than
  /// `max_line` bytes are refused when they are reached.
  TextLines(const std::string& path, std::size_t max_line);
  ~TextLines();
  TextLines(const TextLines&) = delete;
  TextLines& operator=(const TextLines&) = delete;

  /// Sets `line` to the next line without its end ("\n" or "\r\n"), valid until the next call; false behind
  /// the last. Throws Error(input) naming the line for what cannot be read, is damaged or too long.
  bool next(std::string_view& line);
  /// Of the line that next() gave last, from 1.
  std::uint64_t number() const { return number_; }
  const std::string& name() const { return name_; }
  /// Bytes of the file, 0 for a pipe; and how many of them have been read.
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  class Input;
  bool fill();

  std::unique_ptr<Input> input_;
  std::string name_;
  std::size_t max_line_;
  std::string buffer_;  ///< text that was read; the lines before begin_ have been given
  std::size_t begin_ = 0, end_ = 0;
  bool at_end_ = false;
  std::uint64_t number_ = 0, file_bytes_ = 0, bytes_read_ = 0;
};

}  // namespace kvsim
