#include "sim/base/isolated_run.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "sim/base/error.hpp"
#include "sim/base/file_descriptor.hpp"
#include "sim/base/interruption.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kMostText = 4096;
constexpr rlim_t kSeconds = 60, kMoreBytes = rlim_t{1} << 30;
constexpr char kReturned = 'r', kThrew = 't';  ///< first byte of what the child sends

/// Of addresses. Sanitizers reserve terabytes, so the limit counts from what is mapped already.
rlim_t most_bytes() {
  unsigned long pages = 0;
  std::FILE* const sizes = std::fopen("/proc/self/statm", "re");
  if (sizes == nullptr) return RLIM_INFINITY;
  const bool known = std::fscanf(sizes, "%lu", &pages) == 1;
  std::fclose(sizes);
  return known ? pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kMoreBytes : RLIM_INFINITY;
}

void restrict_resources() {
  const rlimit seconds{kSeconds, kSeconds};
  ::setrlimit(RLIMIT_CPU, &seconds);
  const rlimit memory{most_bytes(), most_bytes()};
  ::setrlimit(RLIMIT_AS, &memory);
}

/// The child's whole life.
[[noreturn]] void live(const std::function<std::string()>& work, const FileDescriptor& pipe, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before it could be watched
  ::prctl(PR_SET_DUMPABLE, 0);
  // Ctrl-C in a terminal reaches both processes; the parent decides what it means.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGXCPU})
    std::signal(signal, SIG_DFL);
  // The report of a sanitizer is not for the user, who gets the parent's message.
  if (const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0)
    ::dup2(nowhere, STDERR_FILENO);
  restrict_resources();
  std::string text;
  try {
    text = kReturned + work();
  } catch (const std::exception& error) {
    text = kThrew + std::string("ended with ") + error.what();
  }
  text.resize(std::min(text.size(), kMostText));
  try {
    write_all(pipe, text, "a pipe");
  } catch (const std::exception&) {
    ::_exit(1);
  }
  ::_exit(0);
}

/// All that the child sends, or an interruption.
std::string received(const FileDescriptor& pipe) {
  std::string text;
  std::array<char, kMostText> block{};
  while (true) {
    if (interruption::seen.load()) throw Error(ErrorKind::interrupted, "interrupted");
    pollfd end{pipe.get(), POLLIN, 0};
    if (::poll(&end, 1, 100) <= 0) continue;
    const ssize_t got = ::read(pipe.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || text.size() > kMostText) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
}

/// Ends the child, if it has not ended, and keeps no zombie of it.
class Child {
 public:
  explicit Child(pid_t id) : id_(id) {}
  ~Child() { end(SIGKILL); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// How it ended, after it closed its pipe.
  std::string how() {
    const int status = end(0);
    if (status == kUnknown) return "died";
    if (WIFEXITED(status)) return "ended with code " + std::to_string(WEXITSTATUS(status));
    const int signal = WTERMSIG(status);
    if (signal == SIGXCPU || signal == SIGKILL)
      return "was killed, after " + std::to_string(kSeconds) + " s of computing or for want of memory";
    return "died of signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
  }

 private:
  static constexpr int kUnknown = -1;

  int end(int signal) {
    if (id_ < 0) return kUnknown;
    if (signal != 0) ::kill(id_, signal);
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(id_, &status, 0)) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return ended < 0 ? kUnknown : status;  // nobody keeps the status where SIGCHLD is ignored
  }

  pid_t id_;
};

}  // namespace

IsolatedEnd run_isolated(const std::function<std::string()>& work, const std::string& where) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) system_error("no process can be started to look at it", where);
  const FileDescriptor out(ends[0]);
  FileDescriptor in(ends[1]);
  rlimit memory{};
  const bool limited = ::getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_max < most_bytes();
  const pid_t parent = ::getpid(), id = ::fork();
  if (id < 0) system_error("no process can be started to look at it", where);
  if (id == 0) live(work, in, parent);
  Child child(id);
  in.reset(-1);
  const std::string text = received(out);
  if (text.empty()) return {false, child.how(), limited};
  return {text[0] == kReturned, text.substr(1), limited};
}

}  // namespace kvsim
