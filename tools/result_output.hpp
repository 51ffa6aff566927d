#pragma once
/// Where a command's results go: standard output, or a file that appears complete or not at all.
#include <string>
#include <string_view>

namespace kvsim::tools {

class ResultOutput {
 public:
  /// `path` empty or "-": standard output. A file is opened as PATH.partial at once, so that a place that
  /// cannot be written is known before any work. Throws Error(usage) for a directory, or an existing file
  /// without `overwrite`; Error(input) when it cannot be opened.
  ResultOutput(const std::string& path, bool overwrite);
  /// Without commit(): removes the partial file.
  ~ResultOutput();
  ResultOutput(const ResultOutput&) = delete;
  ResultOutput& operator=(const ResultOutput&) = delete;

  /// Writes everything and gives the file its name. Throws Error(input) when the disk is full. Failures of
  /// standard output are main's to notice. Call once, last.
  void commit(std::string_view text);

 private:
  void close();

  std::string path_;     ///< empty: standard output
  std::string partial_;  ///< empty: written in place (a device, a pipe)
  int fd_ = -1;
};

/// Throws Error(usage) when PATH is a file already and `overwrite` is not set.
void refuse_existing(const std::string& path, bool overwrite);

/// Throws Error(usage) when PATH is one of the files a command reads, under any name.
void refuse_to_overwrite_input(const std::string& path, const std::string& input);

}  // namespace kvsim::tools
