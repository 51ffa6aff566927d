#include "sim/base/isolated_run.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
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
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
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

namespace {

constexpr std::array<std::string_view, 4> kNames{"malloc", "calloc", "realloc", "free"};
constexpr std::size_t kGuard = std::size_t{64} << 10;
constexpr std::size_t kRegion = 16 * kGuard;  // asked for at once: a call of the system for several blocks
constexpr std::size_t kMostReserved = std::size_t{320} << 20;  // of address space

using Address = ElfW(Addr);
using Symbol = ElfW(Sym);
using Relocation = ElfW(Rela);
using Tag = ElfW(Dyn);
using Segment = ElfW(Phdr);
using Places = std::array<std::vector<void**>, kNames.size()>;

// Finding the calls ---------------------------------------------------------------------------------------

/// What the dynamic section of a loaded library says of its relocations.
struct Relocations {
  Address base = 0;
  const Symbol* symbols = nullptr;
  const char* names = nullptr;
  const Relocation *calls = nullptr, *others = nullptr;
  std::size_t call_bytes = 0, other_bytes = 0;

  Relocations(Address at, const Tag* tag) : base(at) {
    for (; tag->d_tag != DT_NULL; ++tag) {
      const Address value = tag->d_un.d_ptr;  // glibc's dynamic linker has made addresses of offsets
      if (tag->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const Symbol*>(value);
      if (tag->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(value);
      if (tag->d_tag == DT_JMPREL) calls = reinterpret_cast<const Relocation*>(value);
      if (tag->d_tag == DT_PLTRELSZ) call_bytes = value;
      if (tag->d_tag == DT_RELA) others = reinterpret_cast<const Relocation*>(value);
      if (tag->d_tag == DT_RELASZ) other_bytes = value;
    }
  }

  void find(Places& places) const {
    if (symbols == nullptr || names == nullptr) return;
    find(calls, call_bytes, places);
    find(others, other_bytes, places);
  }

 private:
  void find(const Relocation* list, std::size_t bytes, Places& places) const {
    if (list == nullptr) return;
    for (const Relocation* one = list; one != list + bytes / sizeof *list; ++one) {
      const std::string_view name = names + symbols[ELF64_R_SYM(one->r_info)].st_name;
      for (std::size_t i = 0; i < kNames.size(); ++i)
        if (name == kNames[i]) places[i].push_back(reinterpret_cast<void**>(base + one->r_offset));
    }
  }
};

struct Search {
  const void* function;
  Places* places;
};

/// Called for each library of the process. Looks into the one that is searched; 1 ends the search.
int look_into(dl_phdr_info* library, std::size_t, void* data) {
  const Search& search = *static_cast<const Search*>(data);
  const auto address = reinterpret_cast<Address>(search.function);
  const Segment* const begin = library->dlpi_phdr;
  const Segment* const end = begin + library->dlpi_phnum;
  const bool here = std::any_of(begin, end, [&](const Segment& segment) {
    const Address first = library->dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && address >= first && address - first < segment.p_memsz;
  });
  if (!here) return 0;
  for (const Segment* segment = begin; segment != end; ++segment) {
    if (segment->p_type != PT_DYNAMIC) continue;
    const auto* tags = reinterpret_cast<const Tag*>(library->dlpi_addr + segment->p_vaddr);
    Relocations(library->dlpi_addr, tags).find(*search.places);
  }
  return 1;
}

// The blocks ----------------------------------------------------------------------------------------------

std::size_t page_bytes() {
  static const auto kBytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return kBytes;
}

/// Blocks that end where untouchable memory begins, to the byte. So a block's address is a multiple of those
/// powers of two (up to a page) of which its size is one, as is the size of a structure of its alignment.
class GuardedBlocks {
 public:
  /// Null for no bytes, and if there is no more address space for it.
  void* take(std::size_t bytes) {
    if (bytes == 0 || bytes > kMostReserved) return nullptr;
    const std::size_t held = (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
    std::byte* const pages = unused(held);
    if (pages == nullptr) return nullptr;
    void* const block = pages + held - bytes;
    blocks_.emplace(block, Block{pages, held, bytes});
    return block;
  }

  /// The size of a block; 0 if it is none of these.
  std::size_t size(const void* block) const {
    const auto found = blocks_.find(block);
    return found == blocks_.end() ? 0 : found->second.bytes;
  }

  void give_back(void* block) {
    const auto found = blocks_.find(block);
    const Block freed = found->second;
    unused_[freed.held].push_back(freed.pages);
    blocks_.erase(found);
  }

 private:
  struct Block {
    std::byte* pages;
    std::size_t held, bytes;
  };

  /// Pages with a guard behind them: those that have been unused for longest, or new ones.
  std::byte* unused(std::size_t held) {
    std::deque<std::byte*>& list = unused_[held];
    if (!list.empty()) {
      std::byte* const first = list.front();
      list.pop_front();
      return first;
    }
    const std::size_t all = held + kGuard;
    if (all > room_) {
      const std::size_t more = std::max(all, kRegion);
      if (more > kMostReserved - reserved_) return nullptr;
      void* const made = ::mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (made == MAP_FAILED) return nullptr;
      next_ = static_cast<std::byte*>(made);
      room_ = more;
      reserved_ += more;
    }
    if (::mprotect(next_, held, PROT_READ | PROT_WRITE) != 0) return nullptr;
    room_ -= all;
    return std::exchange(next_, next_ + all);
  }

  std::unordered_map<const void*, Block> blocks_;
  std::unordered_map<std::size_t, std::deque<std::byte*>> unused_;
  std::byte* next_ = nullptr;  // of a region, of which `room_` bytes are left
  std::size_t room_ = 0, reserved_ = 0;
};

GuardedBlocks& blocks() {
  static GuardedBlocks blocks;
  return blocks;
}

void* guarded_malloc(std::size_t bytes) noexcept {
  void* const block = blocks().take(bytes);
  return block != nullptr ? block : std::malloc(bytes);
}

void* guarded_calloc(std::size_t count, std::size_t bytes) noexcept {
  if (bytes != 0 && count > kMostReserved / bytes) return std::calloc(count, bytes);
  void* const block = blocks().take(count * bytes);
  return block != nullptr ? std::memset(block, 0, count * bytes) : std::calloc(count, bytes);
}

void guarded_free(void* block) noexcept {
  if (blocks().size(block) == 0) return std::free(block);
  blocks().give_back(block);
}

void* guarded_realloc(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return guarded_malloc(bytes);
  const std::size_t before = blocks().size(block);
  if (before == 0) return std::realloc(block, bytes);
  if (bytes == 0) {
    blocks().give_back(block);
    return nullptr;
  }
  void* const larger = guarded_malloc(bytes);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, block, std::min(before, bytes));
  blocks().give_back(block);
  return larger;
}

}  // namespace

AllocationCalls::AllocationCalls(const void* function) {
  Search search{function, &places_};
  ::dl_iterate_phdr(look_into, &search);
}

bool AllocationCalls::found() const {
  return !places_.front().empty() && !places_.back().empty();
}

void AllocationCalls::guard() const {
  if (!found()) return;
  blocks();
  const std::array<void*, 4> functions{
      reinterpret_cast<void*>(guarded_malloc), reinterpret_cast<void*>(guarded_calloc),
      reinterpret_cast<void*>(guarded_realloc), reinterpret_cast<void*>(guarded_free)};
  // The table may have been made read-only once the library was loaded.
  for (const std::vector<void**>& places : places_) {
    for (void** const place : places) {
      const auto address = reinterpret_cast<Address>(place);
      auto* const page = reinterpret_cast<void*>(address / page_bytes() * page_bytes());
      if (::mprotect(page, page_bytes(), PROT_READ | PROT_WRITE) != 0) return;
    }
  }
  for (std::size_t i = 0; i < functions.size(); ++i)
    for (void** const place : places_[i]) *place = functions[i];
}

}  // namespace kvsim
