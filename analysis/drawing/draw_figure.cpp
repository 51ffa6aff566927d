#include "analysis/drawing/draw_figure.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <system_error>

#include "analysis/drawing/svg_text.hpp"
#include "sim/base/atomic_file.hpp"
#include "sim/base/error.hpp"
#include "sim/base/file_descriptor.hpp"

extern char** environ;

namespace kvsim::analysis {
namespace {

[[noreturn]] void failed(const std::string& what, int error) {
  input_error(what + ": " + std::generic_category().message(error), "gnuplot");
}

/// A file in memory: no pipe to fill up, nothing to clean, no disk that may be full.
FileDescriptor scratch(const std::string& content) {
  FileDescriptor file(::memfd_create("gnuplot", MFD_CLOEXEC));
  if (!file.is_open()) failed("no temporary file", errno);
  write_all(file, content, "gnuplot");
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

/// What the child wrote.
std::string content_of(const FileDescriptor& file) {
  std::string out;
  std::array<char, 65536> part{};
  ::lseek(file.get(), 0, SEEK_SET);
  while (true) {
    const ssize_t n = ::read(file.get(), part.data(), part.size());
    if (n < 0) failed("its output cannot be read", errno);
    if (n == 0) return out;
    out.append(part.data(), static_cast<std::size_t>(n));
  }
}

/// A drawing that exceeds the limit on file sizes must end gnuplot, which does not look whether it was
/// written; kvsim itself ignores that signal.
void end_at_file_limit(posix_spawnattr_t& attributes) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
}

/// Lines of gnuplot's complaint that say something, joined.
std::string complaint(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t begin = text.find_first_not_of(" ^\t", at);
    if (begin < end)
      out += (out.empty() ? "" : "; ") + text.substr(begin, std::min<std::size_t>(end - begin, 200));
    at = end + 1;
  }
  return out.empty() ? "it stopped without a word" : out;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) failed("lost", errno);
  return status;
}

/// What gnuplot writes to standard output for a script, byte for byte the same every time for svg. Personal
/// settings of the user are not read. Throws Error(usage) when there is no gnuplot, Error(bug) with gnuplot's
/// words when it does not understand the script.
std::string run_gnuplot(const std::string& script) {
  const FileDescriptor in = scratch(script), out = scratch(""), words = scratch("");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, words.get(), STDERR_FILENO);
  // Read as a file, not as a conversation: the first mistake ends it.
  const std::array<const char*, 4> arguments = {"gnuplot", "--default-settings", "/dev/stdin", nullptr};
  posix_spawnattr_t attributes;
  end_at_file_limit(attributes);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, "gnuplot", &files, &attributes, const_cast<char**>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error == ENOENT)
    usage_error("gnuplot is not installed, and it draws the figures", "",
                "On Debian: apt-get install gnuplot-nox");
  if (error != 0) failed("cannot be started", error);
  const int status = wait_for(child);
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM))
    throw Error(ErrorKind::interrupted, "interrupted");  // Ctrl-C reaches every process of the terminal
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) failed("its drawing cannot be written", EFBIG);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) bug(complaint(content_of(words)), "gnuplot");
  return content_of(out);
}

/// Overwrites the time of writing, which cairo puts into every PDF, by spaces: the same figure is the same
/// bytes. The length stays, because a PDF refers to its objects by their places.
void remove_date(std::string& pdf) {
  const std::size_t at = pdf.rfind("/CreationDate (D:");
  if (at == std::string::npos) return;
  const std::size_t end = pdf.find(')', at);
  if (end != std::string::npos) std::fill(pdf.begin() + at, pdf.begin() + end + 1, ' ');
}

}  // namespace

std::string drawing_of(const Figure& figure, Theme theme, Output output) {
  std::string drawn = run_gnuplot(gnuplot_script(figure, theme, output));
  if (output == Output::pdf) remove_date(drawn);
  return output == Output::svg ? page_svg(drawn, figure, theme) : drawn;
}

void draw_figure(const Figure& figure, const std::string& folder, const std::vector<Output>& formats,
                 const std::vector<Theme>& themes) {
  const std::string stem = folder + "/" + figure.name;
  std::ostringstream data;
  write_csv(data, figure.data);
  write_atomic(stem + ".csv", data.str());
  write_atomic(stem + ".gp", gnuplot_script(figure));
  for (const Output output : formats) {
    for (const Theme theme : themes) {
      const std::string dark = theme == Theme::dark ? ".dark" : "";
      write_atomic(stem + dark + '.' + output_name(output), drawing_of(figure, theme, output));
    }
  }
}

}  // namespace kvsim::analysis
