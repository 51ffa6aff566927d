#pragma once
/// Stores every vector in a code of its own, as soon as its token joins: the formats of inference engines.
#include <algorithm>
#include <concepts>
#include <string>

#include "policies/parts/codes/plain_representation.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {

/// What becomes of one vector of a lane, and what it takes.
template <class C>
concept RowCode = requires(const C code, std::span<float> vector, std::size_t dim, std::size_t lane) {
  {code.code(vector, lane)};
  { code.code_bits(dim) } -> std::convertible_to<std::uint64_t>;
  { code.parameter_bits(dim) } -> std::convertible_to<std::uint64_t>;  // of scales
  { code.shared_bits() } -> std::convertible_to<std::uint64_t>;        // of a lane, for all sequences
};

template <RowCode Code>
Ledger row_ledger(const Code& keys, const Code& values, const StorageShape& shape, std::uint64_t tokens) {
  Ledger out;
  out.codes = shape.n_lanes * tokens * (keys.code_bits(shape.key_dim) + values.code_bits(shape.value_dim));
  out.parameters =
      shape.n_lanes * tokens * (keys.parameter_bits(shape.key_dim) + values.parameter_bits(shape.value_dim));
  out.shared = shape.n_lanes * (keys.shared_bits() + values.shared_bits());
  return out;
}

template <RowCode Code>
class RowCodec final : public Codec {
 public:
  RowCodec(Code keys, Code values) : keys_(std::move(keys)), values_(std::move(values)) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    for (std::size_t slot = 0; slot < rows.slots(); ++slot) join(slot, rows);
  }
  /// The token's own query reads its code, too: engines write the cache before they attend.
  void join(std::size_t slot, CacheRows& rows) override {
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) {
      keys_.code(rows.key(lane, slot), lane);
      values_.code(rows.value(lane, slot), lane);
    }
  }
  Ledger ledger(const CacheRows& rows) const override {
    return row_ledger(keys_, values_, rows.shape(), rows.slots());
  }

 private:
  Code keys_, values_;
};

/// A representation whose codes learn nothing of the prompt.
template <RowCode Code>
using RowRepresentation = PlainRepresentation<RowCodec<Code>, Code, Code>;

/// Throws Error(usage), placed at `where`, where blocks do not divide the vectors of a unit.
inline void check_blocks(std::size_t block, const CacheUnit& unit, std::string_view where) {
  for (const int dim : {unit.head_dim, unit.value_dim})
    if (static_cast<std::size_t>(dim) % block != 0)
      usage_error(
          "blocks of " + std::to_string(block) + " numbers do not divide a vector of " + std::to_string(dim),
          std::string(where), "Engines do not offer the format for such heads.");
}

}  // namespace kvsim::policy
