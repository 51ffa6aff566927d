#include "sim/attention/product_path.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace kvsim::sim {

bool path_available(ProductPath path) {
#ifdef __x86_64__
  if (path == ProductPath::pairs)
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl");
  if (path == ProductPath::wide) return __builtin_cpu_supports("avx512f");
#endif
  return path == ProductPath::plain;
}

ProductPath fastest_of_floats() {
  static const bool wide = path_available(ProductPath::wide);
  return wide ? ProductPath::wide : ProductPath::plain;
}

#ifdef __x86_64__

SubnormalsAreZero::SubnormalsAreZero() : before_(_mm_getcsr()) {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
}
SubnormalsAreZero::~SubnormalsAreZero() {
  _mm_setcsr(before_);
}

#else

SubnormalsAreZero::SubnormalsAreZero() = default;
SubnormalsAreZero::~SubnormalsAreZero() = default;

#endif

}  // namespace kvsim::sim
