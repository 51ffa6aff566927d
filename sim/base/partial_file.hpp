#pragma once
/// How every file of kvsim gets its name. It is written as PATH.NNNNNNNN.partial, a name of its own in the
/// same folder, with random digits; when it is whole and on the disk it is renamed to PATH. Its writer holds
/// a lock (flock) on it, which tells a file that is being written from one whose writer was killed.
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/files.hpp"
#include "sim/base/interruption.hpp"

namespace kvsim {

/// A name that kvsim chose, in a folder of its own.
struct OfKvsim {};

class PartialFile {
 public:
  /// Refuses what refuse_output() refuses, and a PATH that another process is writing, Error(input). Removes
  /// what killed writers of PATH left. A link at PATH stays a link: the file behind it is replaced, and keeps
  /// its mode.
  PartialFile(const std::string& path, bool overwrite);
  /// Replaces what is there, though this run may have read it; a link itself, not the file behind it.
  PartialFile(const std::string& path, OfKvsim);
  /// Without commit(): removes the partial file.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  /// Open for reading and writing.
  const FileDescriptor& file() const { return file_; }
  /// The name it has until commit().
  const std::string& name() const { return partial_; }
  /// Syncs the file, gives it its name and syncs the folder. Without `overwrite` a file that has got the name
  /// meanwhile stays, and this throws Error(input). Throws Error(usage) if this run has read that file. Call
  /// once, last.
  void commit();

 private:
  void begin();
  void create();

  std::string path_, partial_;
  bool overwrite_, of_kvsim_ = false, named_ = false;
  FileDescriptor file_;
  std::optional<interruption::UnfinishedFile> unfinished_;
};

/// Throws Error(usage) when a file cannot be made at PATH: the name is empty or a folder's, a pipe, a device
/// or an input of this run (inputs.hpp) lies there, or anything at all unless `overwrite`.
void refuse_output(const std::string& path, bool overwrite);

/// Removes what killed writers of PATH left, and leaves what is being written.
void remove_leftovers(const std::string& path);

/// The final name of a file that has a partial file's name; nothing for other names.
std::optional<std::string> name_when_whole(std::string_view partial);

/// Throws Error(input) for a file with a partial file's name, whole as it may look: it is being written, or
/// was left by a killed writer.
void refuse_partial(const std::string& path);

/// Makes new or changed names in a folder durable, by fsync of the folder.
void keep_names(const std::string& folder);

/// Text that appears under its name only when it is complete and on the disk.
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
