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
#include "policies/parts/codes/row_codec.hpp"

namespace kvsim::policy {

struct LlamaType {
  enum class Type { f16, q8_0, q4_0 } type = Type::f16;
  static constexpr std::size_t kBlock = 32;

  static LlamaType named(std::string_view name) {
    return {name == "f16" ? Type::f16 : name == "q8_0" ? Type::q8_0 : Type::q4_0};
  }
  bool in_blocks() const { return type != Type::f16; }

  void code(std::span<float> vector, std::size_t /*lane*/) const {
    if (!in_blocks())
      for (float& x : vector) x = nearest_half(x);
    for (std::size_t first = 0; in_blocks() && first < vector.size(); first += kBlock)
      type == Type::q8_0 ? q8_0(vector.subspan(first, kBlock)) : q4_0(vector.subspan(first, kBlock));
  }
  std::uint64_t code_bits(std::size_t dim) const {
    return (type == Type::f16 ? 16 : type == Type::q8_0 ? 8 : 4) * dim;
  }
  std::uint64_t parameter_bits(std::size_t dim) const { return in_blocks() ? dim / kBlock * 16 : 0; }
  std::uint64_t shared_bits() const { return 0; }
  /// q8_0: a comparison, a product, rounded; converted, times the scale. q4_0: a comparison, a product,
  /// plus 8.5, cut off, at most 15, packed; unpacked, converted, minus 8, times the scale.
  CodeOps ops() const {
    return type == Type::f16 ? CodeOps{1, 1} : type == Type::q8_0 ? CodeOps{3, 2} : CodeOps{6, 4};
  }

 private:
  /// Halves round away from 0.
  static void q8_0(std::span<float> block) {
    float largest = 0;
    for (const float x : block) largest = std::max(largest, std::fabs(x));
    const float scale = largest / 127;
    const float inverse = scale > 0 ? 1 / scale : 0;
    const float stored = nearest_half(scale);
    for (float& x : block) x = std::round(x * inverse) * stored;
  }
  /// The number furthest from 0 is code -8, whatever its sign; codes go up to 7.
  static void q4_0(std::span<float> block) {
    float furthest = 0;
    for (const float x : block)
      if (std::fabs(x) > std::fabs(furthest)) furthest = x;
    const float scale = furthest / -8;
    const float inverse = scale != 0 ? 1 / scale : 0;
    const float stored = nearest_half(scale);
    for (float& x : block) x = (std::min(15.0F, std::trunc(x * inverse + 8.5F)) - 8) * stored;
  }
};

struct LlamaTypes {
  LlamaType keys, values;
};

/// A representation without its name and texts. `types` follow from its parameters.
template <class Types>
PolicySpec llama_spec(Types types) {
  return {
      .cost =
          [types](const Params& params, const CostShape& shape) {
            const LlamaTypes of = types(params);
            return coding_cost(shape, of.keys.ops(), of.values.ops(), Coding::appending);
          },
      .rule = RepresentationRule{
          .ledger =
              [types](const Params& params, const StorageShape& shape, std::uint64_t kept,
                      std::uint64_t appended) {
                const LlamaTypes of = types(params);
                return row_ledger(of.keys, of.values, shape, kept + appended);
              },
          .make = [types](const Params& params, const CacheUnit& unit) -> std::unique_ptr<Representation> {
            const LlamaTypes of = types(params);
            if (of.keys.in_blocks() || of.values.in_blocks())
              check_blocks(LlamaType::kBlock, unit, "llama.cpp's blocks");
            return std::make_unique<RowRepresentation<LlamaType>>(of.keys, of.values);
          }}};
}

}  // namespace kvsim::policy
