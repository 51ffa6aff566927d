// 8-bit whole numbers with a scale per token and KV head.
#include <cmath>
#include <limits>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/codes/scalar_code.hpp"

namespace kvsim::policy::int8 {
namespace {

struct Int8 {
  bool vllm = false;

  /// NaN has no code and becomes 0; infinities become the largest number that there is a code for.
  void code(std::span<float> vector, std::size_t /*lane*/) const {
    for (float& x : vector)
      if (!std::isfinite(x)) x = std::isnan(x) ? 0 : std::copysign(std::numeric_limits<float>::max(), x);
    if (!vllm) {
      ScalarCode{ScalarKind::absmax, 8}.code(vector.data(), vector.size());
      return;
    }
    float largest = 0;
    for (const float x : vector) largest = std::max(largest, std::fabs(x));
    const float scale = std::max(largest / 127, 1e-6F);
    for (float& x : vector) x = std::trunc(std::clamp(x * (1 / scale), -128.0F, 127.0F)) * scale;
  }
  std::uint64_t code_bits(std::size_t dim) const { return 8 * dim; }
  std::uint64_t parameter_bits(std::size_t /*dim*/) const { return vllm ? 32 : 16; }
  std::uint64_t shared_bits() const { return 0; }
};

Int8 code_of(const Params& params) {
  return {params.is("variant", "vllm")};
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  return row_ledger(code_of(params), code_of(params), shape, held.all());
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit&) {
  return std::make_unique<RowRepresentation<Int8>>(code_of(params), code_of(params));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "int8",
      .summary = "8-bit whole numbers with a scale per token and KV head",
      .paper = "vLLM, --kv-cache-dtype int8_per_token_head, https://github.com/vllm-project/vllm/pull/38378",
      .details =
          "A vector's scale is (largest |x|) / 127 as a 16-bit float, and codes are the nearest whole "
          "numbers from -127 to 127, halves to even. It is scalar(bits=8,group=0,zero=absmax) under the name "
          "of the format. 8 + 16/d bits per number at a head size of d.",
      .departures = {{"vLLM: 32-bit scales, none below 1e-6, and codes that are cut off towards 0",
                      "16-bit scales and codes to nearest; variant=vllm is vLLM's"}},
      .params = {choice_param(
          "variant", "plain", {"plain", "vllm"},
          "plain: 16-bit scales, codes to nearest; vllm: 32-bit scales, codes towards 0")},
      .cost =
          [](const Params&, const CostShape& shape) {
            const CodeOps ops = scalar_code_ops({ScalarKind::absmax, 8});
            return coding_cost(shape, ops, ops, Coding::appending);
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::int8
