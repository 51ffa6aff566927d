#pragma once
/// Random draws of the distributions of traffic. Logarithms and exponentials are made of additions,
/// multiplications and divisions alone, so that a seed gives the same trace on every machine, whatever its
/// mathematical library rounds.
#include <cstdint>
#include <vector>

namespace kvsim::requests {

/// Natural logarithm of a positive number, and the exponential function, to some 1e-15 of their values.
double portable_log(double x);
double portable_exp(double x);
/// The sine of so many whole turns, to 1e-15.
double portable_sine(double turns);

/// Draws are functions of a key (sim/base/rng.hpp): different draws need different keys.
double exponential_draw(std::uint64_t key);  ///< of mean 1
double normal_draw(std::uint64_t key);       ///< standard; polar method of Marsaglia
double lognormal_draw(std::uint64_t key, double median, double sigma);
double gamma_draw(std::uint64_t key, double shape);  ///< of scale 1; Marsaglia and Tsang 2000
/// How often something happens that goes on with probability 1 - 1 / mean each time; at least once.
std::uint64_t geometric_draw(std::uint64_t key, double mean);

/// Zipf's law over 0, 1, ..., n - 1: number i has weight 1 / (i + 1)^exponent.
class ZipfDraws {
 public:
  ZipfDraws(std::uint64_t n, double exponent);
  std::uint64_t draw(std::uint64_t key) const;

 private:
  std::vector<double> sums_;
};

}  // namespace kvsim::requests
