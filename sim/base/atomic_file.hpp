#pragma once
/// Text that appears under its name only when it is complete and on the disk.
#include <string>
#include <string_view>

#include "sim/base/partial_file.hpp"

namespace kvsim {

class AtomicFile {
 public:
  /// As PartialFile.
  AtomicFile(const std::string& path, bool overwrite) : path_(path), file_(path, overwrite) {}
  explicit AtomicFile(const std::string& path, OfKvsim of = {}) : path_(path), file_(path, of) {}

  /// Throws Error(input) when the disk is full.
  void write(std::string_view text);
  /// Gives the file its name. Call once, last; without it no file remains.
  void commit();

 private:
  void flush();

  std::string path_;
  std::string buffer_;
  PartialFile file_;
};

/// Writes a whole file of kvsim's at once, and replaces one of that name.
void write_atomic(const std::string& path, std::string_view text);

}  // namespace kvsim
