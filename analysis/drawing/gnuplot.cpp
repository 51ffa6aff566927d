#include "analysis/drawing/gnuplot.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "sim/base/error.hpp"

extern char** environ;

namespace kvsim::analysis {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

[[noreturn]] void failed(const std::string& what, int error) {
  input_error(what + ": " + std::generic_category().message(error), "gnuplot");
}

/// Without a name, gone when closed: no pipe to fill up, nothing to clean.
File scratch(const std::string& content) {
  File file(std::tmpfile());
  if (!file) failed("no temporary file", errno);
  if (std::fwrite(content.data(), 1, content.size(), file.get()) != content.size() ||
      std::fflush(file.get()) != 0)
    failed("no room for a temporary file", errno);
  std::rewind(file.get());
  return file;
}

/// What the child wrote.
std::string content_of(std::FILE* file) {
  std::string out;
  std::array<char, 65536> part{};
  std::rewind(file);
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), file)) out.append(part.data(), n);
  if (std::ferror(file) != 0) failed("its output cannot be read", errno);
  return out;
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

}  // namespace

std::string run_gnuplot(const std::string& script) {
  const File in = scratch(script), out = scratch(""), words = scratch("");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(words.get()), STDERR_FILENO);
  // Read as a file, not as a conversation: the first mistake ends it.
  const std::array<const char*, 4> arguments = {"gnuplot", "--default-settings", "/dev/stdin", nullptr};
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, "gnuplot", &files, nullptr, const_cast<char**>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error == ENOENT)
    usage_error("gnuplot is not installed, and it draws the figures", "",
                "On Debian: apt-get install gnuplot-nox");
  if (error != 0) failed("cannot be started", error);
  const int status = wait_for(child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) bug(complaint(content_of(words.get())), "gnuplot");
  return content_of(out.get());
}

}  // namespace kvsim::analysis
