#pragma once
/// A file that appears under its name only when it is complete and on the disk.
#include <string>
#include <string_view>

#include "sim/base/file_descriptor.hpp"

namespace kvsim {

class AtomicFile {
 public:
  /// Opens PATH.partial and replaces an existing one. All members throw Error(input) with the system's
  /// reason.
  explicit AtomicFile(const std::string& path);
  /// Without commit(): removes the partial file.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text);
  /// Gives the file its name and replaces a file of that name. Call once, last.
  void commit();

 private:
  void flush();

  std::string path_;
  std::string partial_;  ///< empty once the file has its name
  std::string buffer_;
  FileDescriptor file_;
};

/// Writes a whole file at once.
void write_atomic(const std::string& path, std::string_view text);

/// Makes new or changed names in a folder durable, by fsync of the folder.
void keep_names(const std::string& folder);

}  // namespace kvsim
