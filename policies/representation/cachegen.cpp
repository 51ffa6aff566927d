// The prompt as whole numbers of fewer steps the deeper the layer, as a cache is sent.
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/coding_cost.hpp"
#include "policies/parts/float_format.hpp"
#include "policies/parts/scalar_code.hpp"

namespace kvsim::policy {
namespace {

/// What a layer's numbers are divided into. With an even number of bins there are as many steps above 0 as
/// below it, and the last bin is not used.
struct Bins {
  unsigned keys = 0, values = 0;
};

/// The layers of the released code's table, of a model with 32.
constexpr std::uint64_t kDepth = 32, kFirstKeys = 10, kSecondKeys = 20, kFirstValues = 2;

Bins bins_of(std::uint64_t level, std::uint64_t layer, std::uint64_t n_layers) {
  constexpr unsigned kKeys[3][3] = {{16, 16, 12}, {32, 16, 16}, {32, 32, 32}};
  constexpr unsigned kValues[3][2] = {{16, 12}, {32, 16}, {32, 32}};
  const std::uint64_t depth = layer * kDepth;
  const std::size_t third = depth < kFirstKeys * n_layers ? 0 : depth < kSecondKeys * n_layers ? 1 : 2;
  return {kKeys[level - 1][third], kValues[level - 1][depth < kFirstValues * n_layers ? 0 : 1]};
}

/// Of a token's numbers in all lanes of a unit.
std::uint64_t code_bits(unsigned bins, std::uint64_t numbers) {
  return static_cast<std::uint64_t>(std::ceil(static_cast<double>(numbers) * std::log2(bins)));
}

Ledger cachegen_ledger(std::uint64_t level, const StorageShape& shape, std::uint64_t coded,
                       std::uint64_t exact) {
  constexpr std::uint64_t kScaleBits = 16;
  const Bins bins = bins_of(level, shape.layer, shape.n_layers);
  Ledger out = exact_ledger(shape, exact);
  out.codes = coded * (code_bits(bins.keys, shape.n_lanes * shape.key_dim) +
                       code_bits(bins.values, shape.n_lanes * shape.value_dim));
  out.parameters = coded * 2 * kScaleBits;
  return out;
}

class CacheGenCodec final : public Codec {
 public:
  CacheGenCodec(std::uint64_t level, Bins bins) : level_(level), bins_(bins) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    std::vector<std::span<float>> vectors(rows.shape().n_lanes);
    for (std::size_t slot = 0; slot < rows.slots(); ++slot) {
      for (std::size_t lane = 0; lane < vectors.size(); ++lane) vectors[lane] = rows.key(lane, slot);
      code(vectors, bins_.keys);
      for (std::size_t lane = 0; lane < vectors.size(); ++lane) vectors[lane] = rows.value(lane, slot);
      code(vectors, bins_.values);
    }
    coded_before_ = rows.positions().empty() ? 0 : 1 + *std::ranges::max_element(rows.positions());
  }
  Ledger ledger(const CacheRows& rows) const override {
    const auto coded = static_cast<std::uint64_t>(
        std::ranges::count_if(rows.positions(), [&](Position p) { return p < coded_before_; }));
    return cachegen_ledger(level_, rows.shape(), coded, rows.slots() - coded);
  }

 private:
  /// The numbers of a token in all lanes share a scale. Halves round to even.
  static void code(std::span<const std::span<float>> lanes, unsigned bins) {
    float largest = 0;
    for (const std::span<float> numbers : lanes) {
      bound(numbers);
      for (const float x : numbers) largest = std::max(largest, std::fabs(x));
    }
    const unsigned above_zero = bins / 2 - 1;
    const auto steps = static_cast<float>(above_zero);
    const float scale = nearest_half(largest) / steps;
    for (const std::span<float> numbers : lanes)
      for (float& x : numbers)
        x = scale > 0 ? std::clamp(std::nearbyint(x / scale), -steps, steps) * scale : 0;
  }

  std::uint64_t level_;
  Bins bins_;
  Position coded_before_ = 0;  ///< positions from here on have come since and are exact
};

class CacheGen final : public Representation {
 public:
  CacheGen(std::uint64_t level, const CacheUnit& unit)
      : level_(level),
        bins_(bins_of(level, static_cast<std::uint64_t>(unit.layer),
                      static_cast<std::uint64_t>(unit.n_layers))) {}
  std::unique_ptr<Codec> codec() const override { return std::make_unique<CacheGenCodec>(level_, bins_); }

 private:
  std::uint64_t level_;
  Bins bins_;
};

std::uint64_t level_of(const Params& params) {
  return std::stoull(params.word("level"));
}

}  // namespace

PolicySpec cachegen_spec() {
  return {
      .name = "cachegen",
      .kind = Kind::representation,
      .summary = "the prompt in whole numbers of fewer steps the deeper the layer, as a cache is sent",
      .paper =
          "Liu, Li, Cheng, Ray, Huang, Zhang, Du, Yao, Lu, Ananthanarayanan, Maire, Hoffmann, Holtzman, "
          "Jiang, "
          "CacheGen: KV Cache Compression and Streaming for Fast Large Language Model Serving, SIGCOMM 2024, "
          "https://arxiv.org/abs/2310.07240",
      .details =
          "As the released code: a token's keys, and its values, of all heads share a 16-bit scale, their "
          "largest "
          "|x|; with `bins` there are bins/2 - 1 whole numbers on each side of 0, halves to even. Bins by "
          "depth, "
          "keys in the first 10, the next 10 and the last 12 of 32 layers and values in the first 2 and the "
          "rest: "
          "32,32,32 and 32,32 at level 3; 32,16,16 and 32,16 at level 2; 16,16,12 and 16,12 at level 1. "
          "Other "
          "depths are divided in proportion. Generated tokens stay as they come: the cache of a prompt is "
          "what is "
          "sent. log2(bins) bits per number and two scales per token.",
      .departures =
          {{"paper: the differences of groups of ten tokens to an anchor are coded; authors' code has no "
            "anchors",
            "as the code"},
           {"authors' code: an arithmetic coder by layer and channel, with tables counted on the prompt",
            "numbers are the same, but sizes are without it: log2(bins) bits per number"},
           {"authors' code: all heads of a layer share a token's scale",
            "where the eviction keeps a set of tokens per layer; elsewhere each KV head has its own"},
           {"authors' code: 80 layers have a table of their own", "the proportions of 32 layers"}},
      .params = {{.name = "level",
                  .type = ParamType::choice,
                  .fallback = "2",
                  .choices = {"3", "2", "1"},
                  .help = "of quality: 3 has most bins, 1 fewest"}},
      .cost =
          [](const Params&, const CostShape& shape) {
            // As a scale alone, of codes narrower than a byte. Generated tokens stay as they come.
            const CodeOps ops = scalar_code_ops({ScalarKind::absmax, 5});
            Cost out = coding_cost(shape, ops, ops, Coding::apart);
            out.step = {};
            return out;
          },
      .ledger =
          [](const Params& params, const StorageShape& shape, std::uint64_t kept, std::uint64_t appended) {
            return cachegen_ledger(level_of(params), shape, kept, appended);
          },
      .by_depth = true,
      .make_representation = [](const Params& params, const CacheUnit& unit)
          -> std::unique_ptr<Representation> { return std::make_unique<CacheGen>(level_of(params), unit); }};
}

}  // namespace kvsim::policy
