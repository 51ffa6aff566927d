// llama.cpp's 4-bit cache.
#include "policies/api/spec.hpp"
#include "policies/parts/coding_cost.hpp"
#include "policies/parts/float_format.hpp"
#include "policies/parts/row_codec.hpp"

namespace kvsim::policy {
namespace {

constexpr std::size_t kBlock = 32;

struct Q4 {
  /// The number furthest from 0 is code -8, whatever its sign; codes go up to 7. They are made with the scale
  /// in 32 bits and read with it in 16.
  void code(std::span<float> vector, std::size_t /*lane*/) const {
    for (std::size_t first = 0; first < vector.size(); first += kBlock) {
      const std::span<float> block = vector.subspan(first, kBlock);
      float furthest = 0;
      for (const float x : block)
        if (std::fabs(x) > std::fabs(furthest)) furthest = x;
      const float scale = furthest / -8;
      const float inverse = scale != 0 ? 1 / scale : 0;
      const float stored = nearest_half(scale);
      for (float& x : block) x = (std::min(15.0F, std::trunc(x * inverse + 8.5F)) - 8) * stored;
    }
  }
  std::uint64_t code_bits(std::size_t dim) const { return 4 * dim; }
  std::uint64_t parameter_bits(std::size_t dim) const { return dim / kBlock * 16; }
  std::uint64_t shared_bits() const { return 0; }
};

}  // namespace

PolicySpec q4_0_spec() {
  return {
      .name = "q4_0",
      .kind = Kind::representation,
      .summary = "4 bits and a 16-bit scale per 32 numbers, as llama.cpp's cache",
      .paper = "llama.cpp, --cache-type-k q4_0 --cache-type-v q4_0, https://github.com/ggml-org/llama.cpp",
      .details =
          "32 neighbouring numbers of a vector share a scale, by which the one furthest from 0 is -8; the "
          "others are whole numbers up to 7, halves rounded up. 4.5 bits per number.",
      .cost =
          [](const Params&, const CostShape& shape) {
            // A comparison, a product, plus 8.5, cut off, at most 15, packed; unpacked, converted, minus 8,
            // times the scale.
            const CodeOps ops{6, 4};
            return coding_cost(shape, ops, ops, Coding::appending);
          },
      .ledger = [](const Params&, const StorageShape& shape, std::uint64_t kept,
                   std::uint64_t appended) { return row_ledger(Q4(), Q4(), shape, kept + appended); },
      .make_representation =
          [](const Params&, const CacheUnit& unit) {
            check_blocks(kBlock, unit, "q4_0");
            return std::make_unique<RowRepresentation<Q4>>(Q4(), Q4());
          }};
}

}  // namespace kvsim::policy
