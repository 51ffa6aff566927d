#pragma once
/// Codes of single vectors whose scales follow from the prompt and stay as they are: what engines take from a
/// calibration.
#include <algorithm>
#include <cmath>
#include <concepts>

#include "policies/parts/codes/row_codec.hpp"

namespace kvsim::policy {

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
