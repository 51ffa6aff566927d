#pragma once
/// Counter-based random numbers: a value is a pure function of its keys, so no draw depends on the order of
/// evaluation, the thread count or the standard library's distributions.
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <string_view>

namespace kvsim {

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64 bits that mixes well.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Combines several keys (seed, layer, head, step, position, ...) into one. Order matters.
constexpr std::uint64_t combine(std::initializer_list<std::uint64_t> keys) {
  std::uint64_t state = 0x243f6a8885a308d3ULL;
  for (const std::uint64_t key : keys) state = mix(state ^ mix(key));
  return state;
}

/// Returns the key of a name (FNV-1a).
constexpr std::uint64_t key_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

/// Returns a uniform draw in [0, 1), of 53 bits.
constexpr double uniform01(std::uint64_t key) {
  return static_cast<double>(mix(key) >> 11) * 0x1p-53;
}

/// Returns a standard normal draw (Box-Muller on two draws of the key).
inline double normal(std::uint64_t key) {
  const double u = 1.0 - uniform01(combine({key, 1}));  // (0, 1]
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * uniform01(combine({key, 2})));
}

}  // namespace kvsim
