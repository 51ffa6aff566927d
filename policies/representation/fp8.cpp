// 8-bit floats, as vLLM's cache.
#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/row_codec.hpp"

namespace kvsim::policy::fp8 {
namespace {

struct Fp8 {
  FloatFormat format = kE4M3;
  std::vector<float> scales{};  ///< per lane; empty: 1

  void code(std::span<float> vector, std::size_t lane) const {
    const float scale = scales.empty() ? 1 : scales[lane];
    for (float& x : vector) x = format.nearest(x / scale) * scale;
  }
  float largest() const { return format.largest(); }
  std::uint64_t code_bits(std::size_t dim) const { return 8 * dim; }
  std::uint64_t parameter_bits(std::size_t /*dim*/) const { return 0; }
  std::uint64_t shared_bits() const { return scales.empty() ? 0 : 32; }
};

Fp8 code_of(const Params& params) {
  return {params.is("format", "e4m3") ? kE4M3 : kE5M2};
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  Fp8 code = code_of(params);
  if (params.is("scale", "head")) code.scales.resize(1);
  return row_ledger(code, code, shape, held.all());
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  if (params.is("scale", "head")) return std::make_unique<PromptScaled<Fp8>>(code_of(params), unit);
  return std::make_unique<RowRepresentation<Fp8>>(code_of(params), code_of(params));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "fp8",
      .summary = "8-bit floats with one scale per KV head, or none, as vLLM's cache",
      .paper = "vLLM, quantized KV cache, https://docs.vllm.ai",
      .details =
          "Every number is divided by its scale, rounded to the nearest 8-bit float (halves to even, beyond "
          "the largest to the largest) and multiplied by it when it is read. Keys are coded as rotated. With "
          "scale=one, which is what an engine does without calibration, numbers near 0 and beyond the "
          "largest are lost.",
      .departures = {{"vLLM: scales come from a calibration on other texts",
                      "scale=head takes them from the prompt itself"}},
      .params =
          {choice_param("format", "e4m3", {"e4m3", "e5m2"},
                        "e4m3: three bits of mantissa, up to 448; e5m2: two, up to 57344"),
           choice_param(
               "scale", "one", {"one", "head"},
               "one: numbers are stored unscaled; head: the largest of the prompt per KV head becomes the "
               "format's largest")},
      .needs_of =
          [](const Params& params) {
            const bool reads = params.is("scale", "head");
            return Needs{.keys = reads, .values = reads};
          },
      .cost =
          [](const Params& params, const CostShape& shape) {
            // Clamped and converted, and back; with a scale a quotient and a product.
            const double scaled = params.is("scale", "head") ? 1 : 0;
            const CodeOps ops{2 + scaled, 1 + scaled};
            return coding_cost(shape, ops, ops, Coding::appending);
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::fp8
