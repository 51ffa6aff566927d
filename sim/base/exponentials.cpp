#include "sim/base/exponentials.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace kvsim {
namespace {

constexpr std::size_t kFour = 4;
using Fours [[gnu::vector_size(kFour * sizeof(double))]] = double;
using FourBits [[gnu::vector_size(kFour * sizeof(double))]] = std::int64_t;

/// Of numbers not above 0.
Fours exponential(Fours x) {
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 x 2^52 rounds to an integer in the last bits.
  constexpr double kRound = 0x1.8p52;
  const Fours shifted = x * 0x1.71547652b82fep0 + kRound, n = shifted - kRound;
  const Fours r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;  // ln 2, its first bits and the rest
  // Taylor's series to r^13 / 13!: the next term is below 2^-57.
  Fours series = Fours{} + 1 / 6227020800.0;
#pragma GCC unroll 16
  for (const double factorial : {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0,
                                 24.0, 6.0, 2.0, 1.0, 1.0})
    series = series * r + 1 / factorial;
  const FourBits power = (reinterpret_cast<FourBits>(shifted) << 52) + (std::int64_t{1023} << 52);
  return x < -708.0 ? Fours{} : series * reinterpret_cast<Fours>(power);
}

}  // namespace

double exponentials(std::span<double> numbers) {
  const std::size_t n = numbers.size();
  const auto four_at = [&](std::size_t i) {
    Fours out = Fours{} - std::numeric_limits<double>::infinity();
    if (i + kFour <= n)
      std::memcpy(&out, &numbers[i], sizeof out);
    else
      std::memcpy(&out, &numbers[i], (n - i) * sizeof(double));
    return out;
  };
  Fours most = four_at(0), sums{};
  for (std::size_t i = 0; i < n; i += kFour) most = most > four_at(i) ? most : four_at(i);
  const double largest = std::max({most[0], most[1], most[2], most[3]});
  for (std::size_t i = 0; i < n; i += kFour) {
    const Fours e = exponential(four_at(i) - largest);
    sums += e;
    if (i + kFour <= n)
      std::memcpy(&numbers[i], &e, sizeof e);
    else
      std::memcpy(&numbers[i], &e, (n - i) * sizeof(double));
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace kvsim
