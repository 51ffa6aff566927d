#pragma once
/// Rotary position embedding (Su et al. 2021, "RoFormer", section 3.2.2), applied and undone: traces store
/// queries and keys as attention used them, and some policies need them without it.
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvsim {

/// Which two components turn together, counted from the first that turns.
enum class RotaryLayout : std::uint8_t {
  half_split,   ///< i and i + inv_freq.size()
  interleaved,  ///< 2i and 2i + 1
};

/// How a model rotates. Pair i at position p turns by the angle p * inv_freq[i], a product of floats as
/// models compute it, and is then multiplied by attention_factor; components beside the pairs are unchanged.
struct Rotary {
  std::span<const float> inv_freq;
  RotaryLayout layout = RotaryLayout::half_split;
  double attention_factor = 1;  ///< positive
  std::size_t first = 0;        ///< the first component that turns
};

/// Rotates `rows`, row-major [n, dim], in place: row r as at position first_position + r. Sines, cosines and
/// products are double. `dim` must hold all pairs and divide the size of `rows` (otherwise Error(bug)).
void rotate(const Rotary& rotary, std::uint64_t first_position, std::size_t dim, std::span<float> rows);

/// Undoes rotate() for rows at first_position, first_position + 1, ...
void unrotate(const Rotary& rotary, std::uint64_t first_position, std::size_t dim, std::span<float> rows);

}  // namespace kvsim
