#include "tools/printing/result_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>
#include <system_error>

#include "sim/base/error.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/visible_text.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;

/// Whether a path is a device, or a pipe that this process was given open (/dev/stdout, /dev/fd/3): its
/// target is no path.
bool in_place(const std::string& path) {
  std::error_code failed;
  if (fs::is_character_file(path, failed)) return true;
  if (!fs::is_fifo(path, failed)) return false;
  return fs::canonical(path, failed).empty();
}

}  // namespace

ResultOutput::ResultOutput(const std::string& path, bool overwrite) {
  if (path.empty() || path == "-") return;
  path_ = path;
  if (!in_place(path)) {
    file_.emplace(path, overwrite);
    return;
  }
  in_place_.reset(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!in_place_.is_open()) system_error("cannot be written", path);
}

void ResultOutput::commit(std::string_view text) {
  if (path_.empty()) {
    front_end().data() << text;
  } else if (file_) {
    file_->write(text);
    file_->commit();
  } else {
    try {
      write_all(in_place_, isatty(in_place_.get()) == 1 ? visible(text) : std::string(text), path_);
      close_written(in_place_, path_);
    } catch (const Error&) {
      if (!in_place_.is_open() || !reader_gone(in_place_.get())) throw;  // -o /dev/stdout | head
    }
  }
}

bool reader_gone(int descriptor) {
  pollfd out{descriptor, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

}  // namespace kvsim::tools
