#include "sim/base/folder_entries.hpp"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "sim/base/error.hpp"

namespace kvsim {

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& failed) {
  std::vector<std::filesystem::path> out;
  const auto close = [](DIR* opened) { ::closedir(opened); };
  const std::unique_ptr<DIR, decltype(close)> opened(::opendir(folder.c_str()), close);
  errno = opened ? 0 : errno;
  while (const dirent* const entry = opened ? ::readdir(opened.get()) : nullptr) {
    if (const std::string_view name = entry->d_name; name != "." && name != "..")
      out.push_back(folder / name);
    errno = 0;
  }
  failed.assign(errno, std::generic_category());
  if (failed) out.clear();
  std::ranges::sort(out);
  return out;
}

void make_folders(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) input_error("cannot be made: " + failed.message(), path);
}

}  // namespace kvsim
