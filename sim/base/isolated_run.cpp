#include "sim/base/isolated_run.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/file_descriptor.hpp"
#include "sim/base/interruption.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kMostText = 4096;
constexpr rlim_t kSeconds = 60, kMoreBytes = rlim_t{1} << 30;
constexpr char kReturned = 'r', kThrew = 't';  ///< first byte of what the child sends

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;  ///< system calls of other processors are not restricted
#endif

/// Allows the system calls of reading open files and of memory, and write() to `pipe`. Every other call fails
/// with EPERM instead of killing the process: a call that a newer C library makes must not make a sound file
/// look damaged. (AddressSanitizer asks for the signal stack whenever something is thrown.) Where the kernel
/// has no filters, there is none.
void restrict_system_calls(int pipe) {
  if (kArchitecture == 0) return;
  const auto word = [](std::size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  // Jumps over `over` instructions unless the loaded word is `value`.
  const auto unless = [](std::uint32_t value, std::uint8_t over) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, over);
  };
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  const std::size_t argument = offsetof(seccomp_data, args);  // low halves: both processors are little-endian

  std::vector<sock_filter> program{word(offsetof(seccomp_data, arch)),
                                   sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
                                   refuse, word(offsetof(seccomp_data, nr))};
  for (const long call : {SYS_pread64,        SYS_read,         SYS_lseek,         SYS_fstat,
                          SYS_munmap,         SYS_mremap,       SYS_brk,           SYS_madvise,
                          SYS_futex,          SYS_sched_yield,  SYS_clock_gettime, SYS_gettimeofday,
                          SYS_getcwd,         SYS_getpid,       SYS_gettid,        SYS_tgkill,
                          SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_sigaltstack,   SYS_rt_sigreturn,
                          SYS_getrandom,      SYS_exit,         SYS_exit_group}) {
    program.push_back(unless(static_cast<std::uint32_t>(call), 1));
    program.push_back(allow);
  }
  for (const long call : {SYS_mmap, SYS_mprotect}) {  // memory, but no new code
    program.insert(program.end(),
                   {unless(static_cast<std::uint32_t>(call), 4), word(argument + 2 * 8),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1), refuse, allow});
  }
  program.insert(program.end(), {unless(SYS_write, 3), word(argument),
                                 unless(static_cast<std::uint32_t>(pipe), 1), allow, refuse});
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

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

/// The child's whole life. The undefined behaviour sanitizer looks into an exception's type with system calls
/// that the filter refuses.
[[noreturn]] __attribute__((no_sanitize("vptr"))) void live(const std::function<std::string()>& work,
                                                            const FileDescriptor& pipe, pid_t parent) try {
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
  restrict_system_calls(pipe.get());
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
} catch (...) {
  ::_exit(1);  // no memory for the filter or the text; what is thrown must not reach the parent's code, which
               // runs here, too
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
