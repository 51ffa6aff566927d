#pragma once
/// The product of two vectors, in a fixed order of sums.
#include <cstddef>

namespace kvsim {

/// Sum of a[i] b[i], in an order that n alone decides.
float dot(const float* a, const float* b, std::size_t n);

}  // namespace kvsim
