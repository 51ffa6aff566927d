#pragma once
/// A file that appears under its name complete and on the disk, or not at all.
#include <string>
#include <string_view>

#include "sim/base/file_descriptor.hpp"

namespace kvsim {

class AtomicFile {
 public:
  /// Opens PATH.partial; what lies there is replaced. All throw Error(input) with the system's reason.
  explicit AtomicFile(const std::string& path);
  /// Without commit(): removes the partial file.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text);
  /// Gives the file its name, in place of a file that has it. Call once, last.
  void commit();

 private:
  void flush();

  std::string path_;
  std::string partial_;  ///< empty: it has its name
  std::string buffer_;
  FileDescriptor file_;
};

/// All of it at once.
void write_atomic(const std::string& path, std::string_view text);

/// Makes names that were given or changed in a folder last: fsync of the folder.
void keep_names(const std::string& folder);

}  // namespace kvsim
