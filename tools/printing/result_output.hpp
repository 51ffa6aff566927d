#pragma once
/// The destination of a command's results: standard output, or a file that appears only when it is complete.
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/atomic_file.hpp"
#include "sim/base/file_descriptor.hpp"

namespace kvsim::tools {

class ResultOutput {
 public:
  /// An empty `path` or "-" is standard output; a device, or a pipe that is open already, is written in
  /// place. Anything else is a PartialFile, opened at once so that a path that cannot be written is refused
  /// before any work, and throws as that does.
  ResultOutput(const std::string& path, bool overwrite);
  /// Writes `text` and gives the file its name. Throws Error(input) when the disk is full. main()
  /// checks standard output for failures. Call it once, at the end.
  void commit(std::string_view text);

 private:
  std::string path_;  ///< empty: standard output
  std::optional<AtomicFile> file_;
  FileDescriptor in_place_;
};

/// Whether nobody will ever read what is written to a pipe (`| head`).
bool reader_gone(int descriptor);

}  // namespace kvsim::tools
