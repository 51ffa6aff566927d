#pragma once
/// Where a command's results go: standard output, or a file that appears complete or not at all.
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/atomic_file.hpp"
#include "sim/base/file_descriptor.hpp"

namespace kvsim::tools {

class ResultOutput {
 public:
  /// `path` empty or "-": standard output. A file is opened as PATH.partial at once, so that a place that
  /// cannot be written is known before any work. Throws Error(usage) for a directory, or an existing file
  /// without `overwrite`; Error(input) when it cannot be opened. Without commit() nothing stays.
  ResultOutput(const std::string& path, bool overwrite);
  /// Writes everything and gives the file its name. Throws Error(input) when the disk is full. Failures of
  /// standard output are main's to notice. Call once, last.
  void commit(std::string_view text);

 private:
  std::string path_;  ///< empty: standard output
  std::optional<AtomicFile> file_;
  FileDescriptor in_place_;  ///< a device or a pipe
};

/// Throws Error(usage) when PATH is a file already and `overwrite` is not set.
void refuse_existing(const std::string& path, bool overwrite);

/// Throws Error(usage) when PATH is one of the files a command reads, under any name.
void refuse_to_overwrite_input(const std::string& path, const std::string& input);

}  // namespace kvsim::tools
