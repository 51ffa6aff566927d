#include "tools/printing/result_output.hpp"

#include <fcntl.h>

#include <filesystem>
#include <iostream>
#include <system_error>

#include "sim/base/error.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;

bool is_device(const std::string& path) {
  std::error_code failed;
  return fs::is_character_file(path, failed);
}

}  // namespace

ResultOutput::ResultOutput(const std::string& path, bool overwrite) {
  if (path.empty() || path == "-") return;
  path_ = path;
  if (!is_device(path)) {
    file_.emplace(path, overwrite);
    return;
  }
  device_.reset(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!device_.is_open()) system_error("cannot be written", path);
}

void ResultOutput::commit(std::string_view text) {
  if (path_.empty()) {
    std::cout << text;
  } else if (file_) {
    file_->write(text);
    file_->commit();
  } else {
    write_all(device_, text, path_);
    close_written(device_, path_);
  }
}

void refuse_to_overwrite_input(const std::string& path, const std::string& input) {
  std::error_code failed;
  if (!path.empty() && fs::equivalent(path, input, failed))
    usage_error("is read by this command and cannot be its output too", path);
}

}  // namespace kvsim::tools
