#include "tools/printing/result_output.hpp"

#include <fcntl.h>

#include <filesystem>
#include <iostream>
#include <system_error>

#include "sim/base/error.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;

/// The target of a path, so that a link remains a link when its file is replaced.
std::string resolved(const std::string& path) {
  std::error_code failed;
  if (!fs::is_symlink(path, failed)) return path;
  const fs::path target = fs::weakly_canonical(path, failed);
  return failed ? path : target.string();
}

}  // namespace

ResultOutput::ResultOutput(const std::string& path, bool overwrite) {
  if (path.empty() || path == "-") return;
  path_ = resolved(path);
  std::error_code failed;
  const fs::file_status status = fs::status(path_, failed);
  if (fs::is_directory(status)) usage_error("is a directory", path_);
  refuse_existing(path_, overwrite);
  if (!fs::exists(status) || fs::is_regular_file(status)) {
    file_.emplace(path_);
    return;
  }
  in_place_.reset(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  if (!in_place_.is_open()) system_error("cannot be written", path_);
}

void ResultOutput::commit(std::string_view text) {
  if (path_.empty()) {
    std::cout << text;
  } else if (file_) {
    file_->write(text);
    file_->commit();
  } else {
    write_all(in_place_, text, path_);
    close_written(in_place_, path_);
  }
}

void refuse_existing(const std::string& path, bool overwrite) {
  std::error_code failed;
  if (!overwrite && fs::is_regular_file(path, failed))
    usage_error("exists already", path, "Choose another name, or say --overwrite.");
}

void refuse_to_overwrite_input(const std::string& path, const std::string& input) {
  std::error_code failed;
  if (!path.empty() && fs::equivalent(path, input, failed))
    usage_error("is read by this command and cannot be its output too", path);
}

}  // namespace kvsim::tools
