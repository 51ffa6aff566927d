#pragma once
/// Stores every vector in a code of its own, as soon as its token joins: the formats of inference engines.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <memory>
#include <string>
#include <tuple>

#include "policies/api/representation.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {

// A representation that observes nothing of the prompt but what its codecs do.

/// Its codecs are CodecOf(given...).
template <class CodecOf, class... Given>
class PlainRepresentation final : public Representation {
 public:
  explicit PlainRepresentation(const Given&... given) : given_(given...) {}
  std::unique_ptr<Codec> codec() const override {
    return std::apply([](const auto&... given) { return std::make_unique<CodecOf>(given...); }, given_);
  }

 private:
  std::tuple<Given...> given_;
};

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

// Codes of single vectors whose scales follow from the prompt and stay as they are: what engines take from a
// calibration.

/// A code with a scale per lane, under which the number furthest from 0 becomes largest().
template <class C>
concept ScaledCode = RowCode<C> && requires(C code) {
  {code.scales.push_back(1.0F)};
  { code.largest() } -> std::convertible_to<float>;
};

/// The largest |x| of the prompt in a lane, of its keys or of its values, becomes the largest number of the
/// code. Where that is 0, or there is no prompt, the scale is 1.
template <ScaledCode Code>
class PromptScaled final : public Representation {
 public:
  PromptScaled(const Code& code, const CacheUnit& unit)
      : keys_(code), values_(code), n_lanes_(unit.n_lanes) {}

  void finish_prompt(const Prompt& prompt) override {
    keys_.scales.clear();
    values_.scales.clear();
    for (int lane = 0; lane < n_lanes_; ++lane) {
      keys_.scales.push_back(scale_of(prompt.keys(lane)));
      values_.scales.push_back(scale_of(prompt.values(lane)));
    }
  }
  std::unique_ptr<Codec> codec() const override { return std::make_unique<RowCodec<Code>>(keys_, values_); }

 private:
  float scale_of(MatrixView rows) const {
    float largest = 0;
    for (std::size_t row = 0; row < rows.rows; ++row)
      for (const float x : rows.row(row)) largest = std::max(largest, std::fabs(x));
    return largest > 0 ? largest / keys_.largest() : 1;
  }

  Code keys_, values_;
  int n_lanes_;
};

}  // namespace kvsim::policy
