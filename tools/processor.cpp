// Where the processor lacks instructions that this build uses, the first of them would end the program with
// an illegal instruction. This says so before any other code of the program or of the Python module runs.
#if defined(__x86_64__)
#include <unistd.h>

namespace {

// What the compiler was told it may use; the functions themselves use none of it.
#if defined(__AVX512F__)
#define KVSIM_NEEDS "AVX-512"
#elif defined(__AVX2__)
#define KVSIM_NEEDS "AVX2"
#endif

#if defined(KVSIM_NEEDS)
[[gnu::target("arch=x86-64")]] bool runs_here() {
  __builtin_cpu_init();
#if defined(__AVX512F__)
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return false;
#endif
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

// 101: before the constructors of static objects, which may use such instructions already.
[[gnu::constructor(101), gnu::target("arch=x86-64")]] void check_processor() {
  if (runs_here()) return;
  constexpr char kText[] =
      "kvsim was built for processors with " KVSIM_NEEDS
      ", which this one lacks\n  Build it on this machine: tools/test.sh, or pip install . in a clone\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::_exit(2);
}
#endif

}  // namespace
#endif
