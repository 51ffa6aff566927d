#include "analysis/study/pinned_inputs.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "analysis/study/study_plan.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/inputs.hpp"
#include "sim/base/sha256.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = std::size_t{1} << 20;

std::string state_of(const std::string& path) {
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0) system_error("cannot be examined", path);
  std::string out;
  for (const auto part : {static_cast<long long>(now.st_dev), static_cast<long long>(now.st_ino),
                          static_cast<long long>(now.st_size), static_cast<long long>(now.st_mtim.tv_sec),
                          static_cast<long long>(now.st_mtim.tv_nsec)})
    out += std::to_string(part) + ' ';
  return out;
}

void pin(std::vector<PinnedFile>& files, const std::string& role, const std::string& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) return;  // whoever reads it says so, or it is no file
  const std::string state = state_of(path);
  files.push_back({role, path, file_digest(path), state});
}

/// A GGUF file, or what of a folder is read.
void pin_model(std::vector<PinnedFile>& files, const std::string& role, const std::string& path) {
  pin(files, role, path);
  std::error_code failed;
  for (const fs::path& entry : entries_of(path, failed)) {
    const std::string name = entry.filename().string();
    constexpr std::array kRead{".json", ".model", ".jinja", ".safetensors"};
    if (std::ranges::any_of(kRead, [&](const char* ending) { return name.ends_with(ending); }))
      pin(files, role + '/' + name, entry.string());
  }
}

}  // namespace

std::string file_digest(const std::string& path) {
  std::error_code failed;
  if (fs::exists(path, failed) && !fs::is_regular_file(path, failed))
    input_error("is not a regular file", path);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) system_error("cannot be opened", path);
  inputs::note(file.get());
  Sha256 digest;
  std::string block(kBlock, '\0');
  for (;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_error("cannot be read", path);
    if (got == 0) return digest.hex();
    digest.update(block.data(), static_cast<std::size_t>(got));
  }
}

std::vector<PinnedFile> pinned_inputs(const StudyPlan& plan) {
  std::vector<PinnedFile> out;
  pin(out, "machine", plan.config.machine);
  pin_model(out, "model", plan.config.model);
  if (plan.config.capture) {
    pin_model(out, "capture.model", plan.config.capture->model);
    const std::vector<StudyWorkload>& workloads = plan.config.capture->workloads;
    for (std::size_t i = 0; i < workloads.size(); ++i)
      pin(out, "capture.workloads[" + std::to_string(i) + "].text", workloads[i].text);
  }
  for (const AskedPolicy& policy : plan.policies) {
    constexpr std::string_view kFile = "file=";  // of every part that reads one
    const std::string& params = policy.composition.params;
    for (std::size_t at = params.find(kFile); at != std::string::npos; at = params.find(kFile, at)) {
      at += kFile.size();
      const std::string file = params.substr(at, params.find_first_of(",()", at) - at);
      const std::string role = "policies " + file;
      if (std::ranges::find(out, role, &PinnedFile::role) == out.end()) pin(out, role, file);
    }
  }
  std::ranges::sort(out, {}, &PinnedFile::role);
  return out;
}

boost::json::object inputs_document(const std::vector<PinnedFile>& files) {
  boost::json::object out;
  for (const PinnedFile& file : files) out[file.role] = file.sha256;
  return out;
}

void require_unchanged(const std::vector<PinnedFile>& files) {
  for (const PinnedFile& file : files)
    if (state_of(file.path) != file.state && file_digest(file.path) != file.sha256)
      input_error("was changed while the study was at work, which began with content " + file.sha256,
                  file.path, "Put that content back.");
}

}  // namespace kvsim::analysis
