// Preloaded into a program, fails its n-th allocation (KVSIM_FAULT=allocation:N) or its n-th system call of
// those below (KVSIM_FAULT=call:N); with KVSIM_FAULT_COUNT=FILE it counts them instead. Nothing here may
// allocate.
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

#include <dlfcn.h>

namespace {

/// Shared with forked copies: one failure is one, wherever it comes.
struct Counts {
  std::atomic<long> allocations{0}, calls{0};
};
Counts* counts = nullptr;
long failing_allocation = 0, failing_call = 0;
bool ready = false;

/// Where the code of libhdf5 lies. Its own allocations do not fail: it reads through null pointers then,
/// which no caller can prevent.
std::uintptr_t hdf5_begin = 0, hdf5_end = 0;

int find_hdf5(dl_phdr_info* library, std::size_t, void*) {
  if (std::strstr(library->dlpi_name, "libhdf5") == nullptr) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    hdf5_begin = library->dlpi_addr + part.p_vaddr;
    hdf5_end = hdf5_begin + part.p_memsz;
  }
  return hdf5_end != 0 && std::strstr(library->dlpi_name, "_hl") == nullptr;
}

__attribute__((constructor(101))) void begin() {
  const char* const fault = std::getenv("KVSIM_FAULT");
  if (fault != nullptr && std::strncmp(fault, "allocation:", 11) == 0)
    failing_allocation = std::atol(fault + 11);
  if (fault != nullptr && std::strncmp(fault, "call:", 5) == 0) failing_call = std::atol(fault + 5);
  counts = reinterpret_cast<Counts*>(::syscall(SYS_mmap, nullptr, sizeof(Counts), PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ::dl_iterate_phdr(find_hdf5, nullptr);
  ready = true;
}

__attribute__((destructor)) void end() {
  const char* const file = std::getenv("KVSIM_FAULT_COUNT");
  if (file == nullptr) return;
  char text[64];
  const int n =
      std::snprintf(text, sizeof text, "%ld %ld\n", counts->allocations.load(), counts->calls.load());
  const long descriptor = ::syscall(SYS_open, file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::syscall(SYS_write, descriptor, text, n);
  ::syscall(SYS_close, descriptor);
}

bool no_memory(const void* caller) {
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  if (!ready || (at >= hdf5_begin && at < hdf5_end)) return false;
  return ++counts->allocations == failing_allocation;
}

/// Whether this call fails, with `code`.
bool fails(int code) {
  if (!ready || ++counts->calls != failing_call) return false;
  errno = code;
  return true;
}

template <class F>
F* next(F*& known, const char* name) {
  if (known == nullptr) known = reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
  return known;
}

}  // namespace

extern "C" {

void* malloc(std::size_t n) {
  return no_memory(__builtin_return_address(0)) ? nullptr : __libc_malloc(n);
}
void* calloc(std::size_t n, std::size_t bytes) {
  return no_memory(__builtin_return_address(0)) ? nullptr : __libc_calloc(n, bytes);
}
void* realloc(void* block, std::size_t n) {
  return n > 0 && no_memory(__builtin_return_address(0)) ? nullptr : __libc_realloc(block, n);
}
void* aligned_alloc(std::size_t alignment, std::size_t n) {
  return no_memory(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, n);
}
void* memalign(std::size_t alignment, std::size_t n) {
  return no_memory(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, n);
}
char* strdup(const char* text) noexcept {
  const std::size_t n = std::strlen(text) + 1;
  void* const out = no_memory(__builtin_return_address(0)) ? nullptr : __libc_malloc(n);
  return out == nullptr ? nullptr : static_cast<char*>(std::memcpy(out, text, n));
}
int posix_memalign(void** out, std::size_t alignment, std::size_t n) {
  if (no_memory(__builtin_return_address(0))) return ENOMEM;
  *out = __libc_memalign(alignment, n);
  return *out == nullptr ? ENOMEM : 0;
}

// A call by its number, so that nothing is looked up.
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = va_arg(more, int);
  va_end(more);
  return fails(EMFILE) ? -1 : static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = va_arg(more, int);
  va_end(more);
  return fails(EMFILE) ? -1 : static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));
ssize_t read(int file, void* out, std::size_t n) {
  return fails(EIO) ? -1 : ::syscall(SYS_read, file, out, n);
}
ssize_t pread(int file, void* out, std::size_t n, off_t at) {
  return fails(EIO) ? -1 : ::syscall(SYS_pread64, file, out, n, at);
}
ssize_t pread64(int file, void* out, std::size_t n, off_t at) __attribute__((alias("pread")));
ssize_t write(int file, const void* data, std::size_t n) {
  return file != STDERR_FILENO && fails(EIO) ? -1 : ::syscall(SYS_write, file, data, n);
}
ssize_t pwrite(int file, const void* data, std::size_t n, off_t at) {
  return fails(EIO) ? -1 : ::syscall(SYS_pwrite64, file, data, n, at);
}
ssize_t pwrite64(int file, const void* data, std::size_t n, off_t at) __attribute__((alias("pwrite")));
int fsync(int file) {
  return fails(EIO) ? -1 : static_cast<int>(::syscall(SYS_fsync, file));
}
int ftruncate(int file, off_t n) noexcept {
  return fails(EIO) ? -1 : static_cast<int>(::syscall(SYS_ftruncate, file, n));
}
int rename(const char* from, const char* to) noexcept {
  return fails(EIO) ? -1 : static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  return fails(EIO) ? -1 : static_cast<int>(::syscall(SYS_renameat2, a, from, b, to, flags));
}
void* mmap(void* address, std::size_t n, int protection, int flags, int file, off_t at) noexcept {
  if (fails(ENOMEM)) return MAP_FAILED;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, n, protection, flags, file, at));
}
void* mmap64(void* address, std::size_t n, int protection, int flags, int file, off_t at) noexcept
    __attribute__((alias("mmap")));
int pipe2(int* ends, int flags) noexcept {
  return fails(EMFILE) ? -1 : static_cast<int>(::syscall(SYS_pipe2, ends, flags));
}
int fstat(int file, struct stat* out) noexcept {
  static int (*known)(int, struct stat*) = nullptr;
  return fails(EIO) ? -1 : next(known, "fstat")(file, out);
}
pid_t fork() noexcept {
  static pid_t (*known)() = nullptr;
  return fails(EAGAIN) ? -1 : next(known, "fork")();
}
int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*body)(void*), void* data) noexcept {
  static int (*known)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = nullptr;
  return fails(EAGAIN) ? EAGAIN : next(known, "pthread_create")(thread, how, body, data);
}
int posix_spawnp(pid_t* id, const char* file, const posix_spawn_file_actions_t* actions,
                 const posix_spawnattr_t* how, char* const words[], char* const environment[]) noexcept {
  static int (*known)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                      char* const[], char* const[]) = nullptr;
  return fails(EAGAIN) ? EAGAIN : next(known, "posix_spawnp")(id, file, actions, how, words, environment);
}

}  // extern "C"
