#include "tools/printing/result_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>
#include <sstream>
#include <system_error>

#include "analysis/results/text_table.hpp"
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

namespace {

/// The codes of tables stay as they are.
std::string visible_but_colours(std::string_view text) {
  std::string out;
  while (true) {
    std::size_t at = std::string_view::npos, length = 0;
    for (const std::string_view code : {analysis::kBestCode, analysis::kFaintCode, analysis::kPlainCode})
      if (const std::size_t found = text.find(code); found < at) at = found, length = code.size();
    out += visible(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out += text.substr(at, length);
    text.remove_prefix(at + length);
  }
}

}  // namespace

FormattedOutput::FormattedOutput(analysis::Format format, const std::string& path, bool overwrite)
    : format_(format), to_caller_(path.empty() || path == "-") {
  if (format_ != analysis::Format::h5) {
    text_.emplace(path, overwrite);
    return;
  }
  if (path.empty() || path == "-")
    usage_error("HDF5 does not go to standard output", "--format h5", "Name a file: -o results.h5");
  h5_.emplace(path, overwrite);
}

void FormattedOutput::commit(const analysis::Document& document) {
  if (h5_) return h5_->commit(document);
  if (to_caller_ && front_end().take(document)) return;
  std::ostringstream text;
  const bool table = format_ == analysis::Format::table;
  std::ostream* const painted = table && to_caller_ ? front_end().painted() : nullptr;
  analysis::table_look().colours = painted != nullptr;
  if (!to_caller_) analysis::table_look().width = 0;
  analysis::write_document(text, format_, document);
  if (painted != nullptr)
    *painted << visible_but_colours(text.str());
  else
    text_->commit(table || format_ == analysis::Format::md ? visible(text.str()) : text.str());
}

}  // namespace kvsim::tools
