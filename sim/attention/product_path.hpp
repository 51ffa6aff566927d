#pragma once
/// Ways to multiply and add up floats on this processor. They differ in speed, never in a bit.
#include <cmath>

namespace kvsim::sim {

enum class ProductPath {
  pairs,  ///< two bf16 numbers at a time (AVX512-BF16)
  wide,   ///< 16 floats at a time (AVX-512)
  plain,  ///< as the compiler does it
};

/// Whether this program has the path and the processor can run it.
bool path_available(ProductPath path);
/// The fastest one of floats: `wide` or `plain`.
ProductPath fastest_of_floats();

/// sum + a * b, rounded once where the compiler may use an instruction for that. Each source file has its
/// own, because that depends on the processor that it is compiled for.
[[maybe_unused]] static inline float fused(float a, float b, float sum) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return std::fma(a, b, sum);
#else
  return sum + a * b;
#endif
}

/// While it lives, numbers below 2^-126 in magnitude are 0 in this thread, as VDPBF16PS has them. Only on
/// x86.
class SubnormalsAreZero {
 public:
  SubnormalsAreZero();
  ~SubnormalsAreZero();
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;

 private:
  [[maybe_unused]] unsigned before_ = 0;
};

}  // namespace kvsim::sim
