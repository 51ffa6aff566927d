#pragma once
/// Arithmetic on whole numbers that come from a user's request: products and sums that do not fit 64 bits are
/// refused.
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/base/error.hpp"

namespace kvsim::cost {

[[noreturn]] inline void does_not_fit(std::string_view what) {
  usage_error("the size of " + std::string(what) + " does not fit 64 bits", {}, "Ask for something smaller.");
}

/// Returns the product of all factors. Throws Error(usage) naming `what` if it does not fit.
template <std::convertible_to<std::uint64_t>... Factors>
std::uint64_t checked_product(std::string_view what, Factors... factors) {
  std::uint64_t product = 1;
  if ((__builtin_mul_overflow(product, static_cast<std::uint64_t>(factors), &product) || ...))
    does_not_fit(what);
  return product;
}

/// Returns the sum of all terms.
template <std::convertible_to<std::uint64_t>... Terms>
std::uint64_t checked_sum(std::string_view what, Terms... terms) {
  std::uint64_t sum = 0;
  if ((__builtin_add_overflow(sum, static_cast<std::uint64_t>(terms), &sum) || ...)) does_not_fit(what);
  return sum;
}

/// Returns ceil(a / b), b > 0.
constexpr std::uint64_t ceil_divided(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace kvsim::cost
