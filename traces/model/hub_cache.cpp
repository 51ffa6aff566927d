#include "traces/model/hub_cache.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "sim/base/files.hpp"
#include "sim/base/split.hpp"

namespace kvsim::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderOfModel = "models--";
constexpr std::uint64_t kMaxRefBytes = 1 << 10;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path cache_folder() {
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty())
    return fs::path(caches) / "huggingface" / "hub";
  return fs::path(variable("HOME")) / ".cache" / "huggingface" / "hub";
}

/// The only GGUF file of a folder; empty: there is none, or several.
std::string only_gguf(const fs::path& folder) {
  std::string found;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    if (entry.path().extension() != ".gguf") continue;
    if (!found.empty()) return "";
    found = entry.path().string();
  }
  return found;
}

}  // namespace

bool is_hub_name(const std::string& model) {
  const std::vector<std::string_view> parts = split(model, '/');
  return parts.size() == 2 && std::ranges::all_of(parts, [](std::string_view part) {
           return !part.empty() && part.front() != '.' && std::ranges::all_of(part, [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    std::string_view("-_.").find(c) != std::string_view::npos;
           });
         });
}

std::string local_checkpoint(const std::string& model) {
  std::error_code failed;
  if (fs::exists(model, failed) || !is_hub_name(model)) return model;
  const std::size_t slash = model.find('/');
  const fs::path folder = cache_folder() / (std::string(kFolderOfModel) + model.substr(0, slash) + "--" +
                                            model.substr(slash + 1));
  const fs::path main = folder / "refs" / "main";
  if (!fs::is_regular_file(main, failed)) return model;
  const std::string commit(trimmed(read_file(main.string(), kMaxRefBytes)));
  const bool plain = std::ranges::all_of(commit, [](char c) { return c != '/' && c != '.'; });
  const fs::path snapshot = folder / "snapshots" / commit;
  if (commit.empty() || !plain || !fs::is_directory(snapshot, failed)) return model;
  if (fs::exists(snapshot / "config.json", failed)) return snapshot.string();
  const std::string gguf = only_gguf(snapshot);
  return gguf.empty() ? snapshot.string() : gguf;
}

std::string hub_name_of(const std::string& path) {
  for (fs::path at = path; at.has_relative_path() && at != at.parent_path(); at = at.parent_path()) {
    if (at.parent_path().filename() != "snapshots") continue;
    const std::string folder = at.parent_path().parent_path().filename().string();
    const std::size_t name = folder.rfind("--");
    if (folder.starts_with(kFolderOfModel) && name != std::string::npos && name >= kFolderOfModel.size())
      return folder.substr(name + 2);
  }
  return "";
}

}  // namespace kvsim::model
