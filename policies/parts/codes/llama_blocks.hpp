#pragma once
/// The types that llama.cpp stores keys and values in (ggml-quants.c), each side in its own: 32 neighbouring
/// numbers of a vector share a 16-bit scale. Codes are made with the scale in 32 bits and read with it in 16.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/orthogonal.hpp"
#include "policies/parts/codes/row_codec.hpp"

namespace kvsim::policy {

struct LlamaType {
  enum class Type { f16, q8_0, q5_1, q5_0, q4_1, q4_0 } type = Type::f16;
  /// Numbers that a Walsh-Hadamard transform mixes before they are coded, and back when they are read; 0:
  /// none.
  std::size_t rotated = 0;
  static constexpr std::size_t kBlock = 32;
  static constexpr const char* kNames[] = {"f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"};

  static LlamaType named(std::string_view name) {
    return {static_cast<Type>(std::find(std::begin(kNames), std::end(kNames), name) - std::begin(kNames))};
  }
  bool in_blocks() const { return type != Type::f16; }

  void code(std::span<float> vector, std::size_t /*lane*/) const {
    if (!in_blocks())
      for (float& x : vector) x = nearest_half(x);
    if (rotated > 0) bound(vector);
    turn(vector);
    for (std::size_t first = 0; in_blocks() && first < vector.size(); first += kBlock) {
      const std::span<float> block = vector.subspan(first, kBlock);
      if (type == Type::q8_0)
        q8_0(block);
      else if (type == Type::q4_1 || type == Type::q5_1)
        from_least(block, static_cast<float>((1U << bits()) - 1));
      else
        from_furthest(block, static_cast<float>(1U << (bits() - 1)));
    }
    turn(vector);
  }
  std::uint64_t bits() const {
    constexpr std::uint64_t kBits[] = {16, 8, 5, 5, 4, 4};
    return kBits[static_cast<std::size_t>(type)];
  }
  std::uint64_t code_bits(std::size_t dim) const { return bits() * dim; }
  /// A scale per block, and a least number where codes count from one.
  std::uint64_t parameter_bits(std::size_t dim) const {
    return in_blocks() ? dim / kBlock * (type == Type::q4_1 || type == Type::q5_1 ? 32 : 16) : 0;
  }
  std::uint64_t shared_bits() const { return 0; }
  /// q8_0: a comparison, a product, rounded; converted, times the scale. q4_0: a comparison, a product, plus
  /// 8.5, cut off, at most 15, packed; unpacked, converted, minus 8, times the scale; so the others. A
  /// transform adds once per number and level, and scales; queries and outputs are turned, not what is read.
  CodeOps ops() const {
    CodeOps out = type == Type::f16 ? CodeOps{1, 1} : type == Type::q8_0 ? CodeOps{3, 2} : CodeOps{6, 4};
    if (rotated > 0) out.make += hadamard_ops(rotated);
    return out;
  }

 private:
  void turn(std::span<float> vector) const {
    if (rotated == 0 || !in_blocks()) return;
    for (std::size_t first = 0; first < vector.size(); first += rotated)
      hadamard(vector.subspan(first, rotated));
  }
  /// Halves round away from 0.
  static void q8_0(std::span<float> block) {
    float largest = 0;
    for (const float x : block) largest = std::max(largest, std::fabs(x));
    const float scale = largest / 127;
    const float inverse = scale > 0 ? 1 / scale : 0;
    const float stored = nearest_half(scale);
    for (float& x : block) x = std::round(x * inverse) * stored;
  }
  /// The number furthest from 0 is code -half, whatever its sign; codes go up to half - 1.
  static void from_furthest(std::span<float> block, float half) {
    float furthest = 0;
    for (const float x : block)
      if (std::fabs(x) > std::fabs(furthest)) furthest = x;
    const float scale = furthest / -half;
    const float inverse = scale != 0 ? 1 / scale : 0;
    const float stored = nearest_half(scale);
    for (float& x : block)
      x = (std::min(2 * half - 1, std::trunc(x * inverse + half + 0.5F)) - half) * stored;
  }
  /// The least number is code 0 and the largest the last.
  static void from_least(std::span<float> block, float last) {
    const auto [low, high] = std::minmax_element(block.begin(), block.end());
    const float least = *low, scale = (*high - least) / last;
    const float inverse = scale > 0 ? 1 / scale : 0;
    const float stored = nearest_half(scale), from = nearest_half(least);
    for (float& x : block) x = std::min(last, std::trunc((x - least) * inverse + 0.5F)) * stored + from;
  }
};

struct LlamaTypes {
  LlamaType keys, values;
  bool rotates = false;

  /// For vectors of these sizes. With `rotates` keys are mixed in the largest power of two from 64 on that
  /// divides them, values in blocks of 64, each where 64 divides it.
  LlamaTypes of(std::size_t key_dim, std::size_t value_dim) const {
    constexpr std::size_t kLeast = 64;
    LlamaTypes out = *this;
    if (rotates && key_dim % kLeast == 0) out.keys.rotated = key_dim & (~key_dim + 1);
    if (rotates && value_dim % kLeast == 0) out.values.rotated = kLeast;
    return out;
  }
};

/// A representation without its name and texts. `types` follow from its parameters.
template <class Types>
PolicySpec llama_spec(Types types) {
  return {
      .cost =
          [types](const Params& params, const CostShape& shape) {
            const LlamaTypes of = types(params).of(shape.head_dim, shape.value_dim);
            return coding_cost(shape, of.keys.ops(), of.values.ops(), Coding::appending);
          },
      .rule = RepresentationRule{
          .ledger =
              [types](const Params& params, const StorageShape& shape, LaneTokens held) {
                const LlamaTypes of = types(params);
                return row_ledger(of.keys, of.values, shape, held.all());
              },
          .make = [types](const Params& params, const CacheUnit& unit) -> std::unique_ptr<Representation> {
            const LlamaTypes of = types(params).of(static_cast<std::size_t>(unit.head_dim),
                                                   static_cast<std::size_t>(unit.value_dim));
            if (of.keys.in_blocks() || of.values.in_blocks())
              check_blocks(LlamaType::kBlock, unit, "llama.cpp's blocks");
            return std::make_unique<RowRepresentation<LlamaType>>(of.keys, of.values);
          }}};
}

}  // namespace kvsim::policy
