#include "sim/base/partial_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/inputs.hpp"

namespace kvsim {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".partial";
constexpr std::size_t kDigits = 8;

/// The target of a path, so that a link remains a link when its file is replaced.
std::string resolved(const std::string& path) {
  constexpr int kMostLinks = 40;  // of the system
  fs::path at = path;
  std::error_code failed;
  for (int links = 0; links < kMostLinks && fs::is_symlink(at, failed); ++links)
    at = at.parent_path() / fs::read_symlink(at, failed);
  return at.string();
}

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string random_digits() {
  char text[kDigits + 1];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(std::random_device()()));
  return text;
}

void refuse_input(const std::string& path) {
  if (inputs::contain(path))
    usage_error("is read by this command and cannot be its output too", path, "Choose another name.");
}

bool locked(const FileDescriptor& file) {
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

/// Whether a process is writing PATH. Removes what killed ones left. A file system without locks cannot tell
/// the two apart: there, nothing is removed and this is false.
bool sweep(const std::string& path) {
  const std::string folder = folder_of(path), name = fs::path(path).filename().string();
  bool written = false;
  std::error_code failed;
  for (const fs::path& partial : entries_of(folder, failed)) {
    if (name_when_whole(partial.filename().string()) != name) continue;
    const FileDescriptor file(::open(partial.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (!file.is_open()) continue;
    if (locked(file))
      ::unlink(partial.c_str());
    else if (errno == EWOULDBLOCK)
      written = true;
  }
  return written;
}

/// Gives a file its name unless the name is taken; errno is EEXIST then.
bool named_if_free(const std::string& partial, const std::string& path) {
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // NFS, for one, cannot do that but has hard links.
  if (::link(partial.c_str(), path.c_str()) != 0) return false;
  ::unlink(partial.c_str());
  return true;
}

}  // namespace

std::optional<std::string> name_when_whole(std::string_view partial) {
  if (!partial.ends_with(kEnding)) return std::nullopt;
  partial.remove_suffix(kEnding.size());
  if (partial.size() < kDigits + 2) return std::nullopt;
  const std::string_view digits = partial.substr(partial.size() - kDigits);
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  partial.remove_suffix(kDigits);
  if (!partial.ends_with('.')) return std::nullopt;
  partial.remove_suffix(1);
  return std::string(partial);
}

void refuse_output(const std::string& path, bool overwrite) {
  if (path.empty()) usage_error("is empty", "the name of an output", "Name a file.");
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (fs::is_directory(status) || path.back() == '/') usage_error("is a directory", path, "Name a file.");
  if (fs::is_fifo(status) || fs::is_socket(status))
    usage_error("is a pipe, which cannot be an output", path,
                "Name a file; what goes to standard output can be piped.");
  if (fs::exists(status) && !fs::is_regular_file(status))
    usage_error("is a device, which cannot be replaced by a file", path, "Name a file.");
  refuse_input(path);
  if (!overwrite && fs::exists(fs::symlink_status(path, failed)))
    usage_error("exists already", path, "Choose another name, or say --overwrite.");
}

void remove_leftovers(const std::string& path) {
  sweep(path);
}

void refuse_partial(const std::string& path) {
  if (name_when_whole(path))
    input_error("is not finished: a command is writing it, or was killed while it did", path,
                "The next command that writes " + *name_when_whole(path) + " removes what was left.");
}

void keep_names(const std::string& folder) {
  const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.is_open() && errno == EACCES) return;  // who may not list a folder may not sync it either
  if (!file.is_open()) system_error("cannot be opened", folder);
  if (::fsync(file.get()) != 0 && errno != EINVAL) system_error("cannot be written", folder);
}

PartialFile::PartialFile(const std::string& path, bool overwrite)
    : path_(resolved(path)), overwrite_(overwrite) {
  refuse_output(path, overwrite);
  begin();
}

PartialFile::PartialFile(const std::string& path, OfKvsim) : path_(path), overwrite_(true), of_kvsim_(true) {
  begin();
}

void PartialFile::begin() {
  if (sweep(path_)) input_error("is being written by another process", path_);
  create();
}

void PartialFile::create() {
  struct stat there {};
  const bool replaces = ::lstat(path_.c_str(), &there) == 0 && S_ISREG(there.st_mode);
  while (true) {
    partial_ = path_ + '.' + random_digits() + std::string(kEnding);
    unfinished_.emplace(partial_);
    file_.reset(::open(partial_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!file_.is_open() && errno == EEXIST) continue;
    if (!file_.is_open()) system_error("cannot be written", path_);
    if (replaces) ::fchmod(file_.get(), there.st_mode & 0777);
    struct stat status {};
    const bool other = !locked(file_) && errno == EWOULDBLOCK;
    // Another writer of this name may have taken the file for a leftover before it was locked.
    if (!other && ::fstat(file_.get(), &status) == 0 && status.st_nlink > 0) return;
    ::unlink(partial_.c_str());
  }
}

PartialFile::~PartialFile() {
  if (!named_) ::unlink(partial_.c_str());
}

void PartialFile::commit() {
  if (::fsync(file_.get()) != 0) system_error("cannot be written", path_);
  if (!of_kvsim_) refuse_input(path_);  // a file that another file names was read since
  if (overwrite_) {
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) system_error("cannot be given its name", path_);
  } else if (!named_if_free(partial_, path_)) {
    if (errno == EEXIST)
      input_error("was written by another process meanwhile, and stays as it is", path_,
                  "Choose another name, or say --overwrite.");
    system_error("cannot be given its name", path_);
  }
  named_ = true;
  unfinished_.reset();
  keep_names(folder_of(path_));
}

namespace {

constexpr std::size_t kBufferBytes = 1U << 20;

}  // namespace

void AtomicFile::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::flush() {
  write_all(file_.file(), buffer_, path_);
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  file_.commit();
}

void write_atomic(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace kvsim
