// llama.cpp's 8-bit cache.
#include "policies/api/spec.hpp"
#include "policies/parts/coding_cost.hpp"
#include "policies/parts/float_format.hpp"
#include "policies/parts/row_codec.hpp"

namespace kvsim::policy {
namespace {

constexpr std::size_t kBlock = 32;

struct Q8 {
  /// Codes are made with the scale in 32 bits and read with it in 16; halves round away from 0.
  void code(std::span<float> vector, std::size_t /*lane*/) const {
    for (std::size_t first = 0; first < vector.size(); first += kBlock) {
      const std::span<float> block = vector.subspan(first, kBlock);
      float largest = 0;
      for (const float x : block) largest = std::max(largest, std::fabs(x));
      const float scale = largest / 127;
      const float inverse = scale > 0 ? 1 / scale : 0;
      const float stored = nearest_half(scale);
      for (float& x : block) x = std::round(x * inverse) * stored;
    }
  }
  std::uint64_t code_bits(std::size_t dim) const { return 8 * dim; }
  std::uint64_t parameter_bits(std::size_t dim) const { return dim / kBlock * 16; }
  std::uint64_t shared_bits() const { return 0; }
};

}  // namespace

PolicySpec q8_0_spec() {
  return {
      .name = "q8_0",
      .kind = Kind::representation,
      .summary = "8 bits and a 16-bit scale per 32 numbers, as llama.cpp's cache",
      .paper = "llama.cpp, --cache-type-k q8_0 --cache-type-v q8_0, https://github.com/ggml-org/llama.cpp",
      .details =
          "32 neighbouring numbers of a vector share the scale (largest |x|) / 127; codes round to nearest, "
          "halves away from 0. 8.5 bits per number.",
      .cost =
          [](const Params&, const CostShape& shape) {
            // A comparison, a product, rounded; converted, times the scale.
            const CodeOps ops{3, 2};
            return coding_cost(shape, ops, ops, Coding::appending);
          },
      .ledger = [](const Params&, const StorageShape& shape, std::uint64_t kept,
                   std::uint64_t appended) { return row_ledger(Q8(), Q8(), shape, kept + appended); },
      .make_representation =
          [](const Params&, const CacheUnit& unit) {
            check_blocks(kBlock, unit, "q8_0");
            return std::make_unique<RowRepresentation<Q8>>(Q8(), Q8());
          }};
}

}  // namespace kvsim::policy
