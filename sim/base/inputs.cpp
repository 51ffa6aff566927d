#include "sim/base/inputs.hpp"

#include <sys/stat.h>

#include <mutex>
#include <utility>

namespace kvsim::inputs {
namespace {

std::mutex mutex;
bool begun = false;
std::set<std::pair<dev_t, ino_t>> files;
std::set<std::string> told;

void add(const struct stat& status) {
  const std::lock_guard lock(mutex);
  if (begun && S_ISREG(status.st_mode)) files.emplace(status.st_dev, status.st_ino);
}

}  // namespace

void begin_run() {
  const std::lock_guard lock(mutex);
  begun = true;
  files.clear();
  told.clear();
}

void note(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) == 0) add(status);
}

void note(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) add(status);
}

void remark(const std::string& text) {
  const std::lock_guard lock(mutex);
  if (begun) told.insert(text);
}

std::set<std::string> remarks() {
  const std::lock_guard lock(mutex);
  return told;
}

bool contain(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  const std::lock_guard lock(mutex);
  return files.contains({status.st_dev, status.st_ino});
}

}  // namespace kvsim::inputs
