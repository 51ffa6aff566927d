#include "sim/base/half.hpp"

#include <cstring>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace kvsim {
namespace {

template <float (*Widen)(std::uint16_t)>
void widen_each(const void* from, std::size_t count, float* to) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    to[i] = Widen(bits);
  }
}

/// The same floats as widen_f16(), of which compilers make slow code where there is AVX2 alone; but a NaN
/// becomes quiet.
void widen_f16_each(const void* from, std::size_t count, float* to) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  std::size_t done = 0;
#ifdef __F16C__
  for (; done + 8 <= count; done += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * done));
    _mm256_storeu_ps(to + done, _mm256_cvtph_ps(halves));
  }
#endif
  widen_each<widen_f16>(bytes + 2 * done, count - done, to + done);
}

template <std::uint16_t (*Narrow)(float)>
void narrow_each(const float* from, std::size_t count, void* to) {
  auto* bytes = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = Narrow(from[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

}  // namespace

void widen(Elem elem, const void* from, std::size_t count, float* to) {
  if (elem == Elem::f32) {
    if (count > 0) std::memcpy(to, from, count * 4);
  } else if (elem == Elem::bf16) {
    widen_each<widen_bf16>(from, count, to);
  } else {
    widen_f16_each(from, count, to);
  }
}

void narrow(Elem elem, const float* from, std::size_t count, void* to) {
  if (elem == Elem::f32) {
    if (count > 0) std::memcpy(to, from, count * 4);
  } else if (elem == Elem::bf16) {
    narrow_each<narrow_bf16>(from, count, to);
  } else {
    narrow_each<narrow_f16>(from, count, to);
  }
}

}  // namespace kvsim
