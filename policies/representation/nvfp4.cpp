// NVIDIA's 4-bit floats in blocks of 16.
#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/costs/cost_terms.hpp"

namespace kvsim::policy::nvfp4 {
namespace {

constexpr std::size_t kBlock = 16;

struct NvFp4 {
  std::vector<float> scales{};  ///< per lane; empty: 1

  /// NaN has no code and becomes 0; infinities become the largest number of their block.
  void code(std::span<float> vector, std::size_t lane) const {
    const float outer = scales.empty() ? 1 : scales[lane];
    for (std::size_t first = 0; first < vector.size(); first += kBlock) {
      const std::span<float> block = vector.subspan(first, kBlock);
      float furthest = 0;
      for (const float x : block) furthest = std::max(furthest, std::fabs(x));
      const float scale = kE4M3.nearest(furthest / kE2M1.largest() / outer) * outer;
      for (float& x : block) x = scale > 0 && !std::isnan(x) ? kE2M1.nearest(x / scale) * scale : 0;
    }
  }
  /// Of a block's code times its scale.
  float largest() const { return kE2M1.largest() * kE4M3.largest(); }
  std::uint64_t code_bits(std::size_t dim) const { return 4 * dim; }
  std::uint64_t parameter_bits(std::size_t dim) const { return dim / kBlock * 8; }
  std::uint64_t shared_bits() const { return scales.empty() ? 0 : 32; }
};

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  NvFp4 code;
  if (params.is("scale", "head")) code.scales.resize(1);
  return row_ledger(code, code, shape, held.all());
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  check_blocks(kBlock, unit, "nvfp4");
  if (params.is("scale", "head")) return std::make_unique<PromptScaled<NvFp4>>(NvFp4(), unit);
  return std::make_unique<RowRepresentation<NvFp4>>(NvFp4(), NvFp4());
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "nvfp4",
      .summary = "4-bit floats with an 8-bit float as scale per 16 numbers and a scale per KV head",
      .paper = "NVIDIA, NVFP4; FlashInfer, nvfp4_kv_quantize, https://docs.flashinfer.ai",
      .details =
          "16 neighbouring numbers of a vector share a scale, (largest |x|) / 6 divided by the outer scale "
          "and rounded to the nearest e4m3; a number is its nearest e2m1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and "
          "their negatives, halves to even) times both. With scale=head the outer scale is (largest |x|) / "
          "(6 * 448), of the prompt's keys or values of a KV head, and stays as it is: later numbers beyond "
          "the prompt's largest become that. 4.5 bits per number.",
      .departures = {{"engines: one outer scale per layer, which the caller passes in, from a calibration",
                      "one per KV head from the prompt itself; scale=one is no calibration"}},
      .params = {choice_param(
          "scale", "head", {"head", "one"},
          "head: the largest number of the prompt per KV head becomes the format's largest; one: no "
          "outer scale")},
      .needs_of =
          [](const Params& params) {
            const bool reads = params.is("scale", "head");
            return Needs{.keys = reads, .values = reads};
          },
      .cost =
          [](const Params& params, const CostShape& shape) {
            // A comparison, over the scale, to the nearest, into its byte; out of it, converted, times the
            // scale.
            const CodeOps ops{4, 3};
            Cost out = coding_cost(shape, ops, ops, Coding::appending);
            // The outer scale is the largest of the prompt.
            if (params.is("scale", "head"))
              out.prompt =
                  out.prompt + over_keys(shape, shape.prompt, 1) + over_values(shape, shape.prompt, 1);
            return out;
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::nvfp4
