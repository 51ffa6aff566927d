// Block floating point: neighbouring channels share an exponent, keys after sorting their channels by size.
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::block_float {
namespace {

constexpr std::uint64_t kExponentBits = 8, kChannelBits = 16;

struct BlockFloat {
  std::uint64_t bits = 4;  ///< of a mantissa, its sign included
  std::size_t block = 32;
  std::size_t sorted = 0;                          ///< channels that are sorted: all or none
  std::vector<std::vector<std::size_t>> orders{};  ///< per lane, where channels are sorted

  /// NaN has no code and becomes 0; infinities become the largest number of their block.
  void code(std::span<float> vector, std::size_t lane) const {
    const auto channel = [&](std::size_t place) { return sorted == 0 ? place : orders[lane][place]; };
    for (std::size_t first = 0; first < vector.size(); first += block) {
      float furthest = 0;
      for (std::size_t i = first; i < first + block; ++i)
        furthest = std::max(furthest, std::fabs(vector[channel(i)]));
      const int exponent = furthest > 0 ? std::clamp(std::ilogb(furthest), -126, 127) : -126;
      const float step = std::ldexp(1.0F, exponent - static_cast<int>(bits) + 2);
      const auto largest = static_cast<float>((1U << (bits - 1)) - 1);
      for (std::size_t i = first; i < first + block; ++i) {
        float& x = vector[channel(i)];
        x = std::isnan(x) ? 0 : std::clamp(std::nearbyint(x / step), -largest, largest) * step;
      }
    }
  }
  std::uint64_t code_bits(std::size_t dim) const { return bits * dim; }
  std::uint64_t parameter_bits(std::size_t dim) const { return dim / block * kExponentBits; }
  std::uint64_t shared_bits() const { return sorted * kChannelBits; }

  static BlockFloat of(const Params& params) { return {params.count("bits"), params.count("block")}; }
};

/// Sorts the channels of each lane by the sums of their squares over the keys of the prompt before rotation,
/// the largest first.
class KSort final : public Representation {
 public:
  KSort(const BlockFloat& code, const CacheUnit& unit) : keys_(code), values_(code), n_lanes_(unit.n_lanes) {
    keys_.sorted = static_cast<std::size_t>(unit.head_dim);
  }

  void finish_prompt(const Prompt& prompt) override {
    keys_.orders.clear();
    for (int lane = 0; lane < n_lanes_; ++lane) {
      const MatrixView keys = prompt.keys(lane);
      std::vector<double> squares(keys_.sorted);
      std::vector<float> key(keys_.sorted);
      for (std::size_t position = 0; position < keys.rows; ++position) {
        std::ranges::copy(keys.row(position), key.begin());
        unrotate(prompt.rotary(), position, key.size(), key);
        for (std::size_t c = 0; c < key.size(); ++c)
          squares[c] += static_cast<double>(key[c]) * static_cast<double>(key[c]);
      }
      keys_.orders.push_back(largest_first(squares));
    }
  }
  std::unique_ptr<Codec> codec() const override {
    return std::make_unique<RowCodec<BlockFloat>>(keys_, values_);
  }

 private:
  BlockFloat keys_, values_;
  int n_lanes_;
};

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  BlockFloat keys = BlockFloat::of(params);
  if (params.flag("sort")) keys.sorted = shape.key_dim;
  return row_ledger(keys, BlockFloat::of(params), shape, held.all());
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  const BlockFloat code = BlockFloat::of(params);
  for (const int dim : {unit.head_dim, unit.value_dim})
    if (static_cast<std::size_t>(dim) % code.block != 0)
      usage_error("blocks of " + std::to_string(code.block) + " numbers do not divide a vector of " +
                      std::to_string(dim),
                  "block_float(" + params.text() + ")", "Choose a block that does.");
  if (params.flag("sort")) return std::make_unique<KSort>(code, unit);
  return std::make_unique<RowRepresentation<BlockFloat>>(code, code);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "block_float",
      .summary = "block floating point, the channels of the keys sorted by size",
      .paper =
          "Trukhanov, Soloveychik, Accurate Block Quantization in LLMs with Outliers, 2024, "
          "https://arxiv.org/abs/2403.20137",
      .details =
          "`block` channels of a vector share an 8-bit exponent, that of their largest number, and each is a "
          "signed mantissa, rounded to nearest, halves to even, and cut off at the largest one. Sorting the "
          "channels of a head by size first puts large ones in blocks of their own; it is the same order for "
          "all tokens, so products of queries and keys do not change but for the code. With one block per "
          "vector it changes nothing. Values have the same code without sorting. bits + 8/block bits per "
          "number.",
      .departures = {{"paper: K-sort orders channels by the norms of the rows of the key projection, once "
                      "per model, and builds the order into both projections",
                      "a stand-in: by the root mean square of the prompt's keys before rotation, per KV "
                      "head. The order is counted as a table that all sequences share"},
                     {"paper: keys alone", "values, too, unsorted"},
                     {"paper: how a mantissa beyond its range is cut off is not known here",
                      "at 2^(bits-1) - 1 on both sides of 0"}},
      .params = {count_param("bits", "4", {2, 8},
                             "of a mantissa with its sign; 4 is the paper's BFP12, 8 its BFP16", "bits"),
                 count_param("block", "32", {1, 1 << 20},
                             "that share an exponent; the paper has 128, 64 and 32", "channels"),
                 flag_param("sort", "true", "sorts the channels of the keys by size first")},
      .needs_of =
          [](const Params& params) {
            const bool reads = params.flag("sort");
            return Needs{.keys = reads, .queries = reads};
          },
      .cost =
          [](const Params& params, const CostShape& shape) {
            // A comparison, over the step, rounded, clamped; converted, times the step; narrow mantissas
            // share bytes.
            const double packing = params.count("bits") < 8 ? 1 : 0;
            const CodeOps ops{4 + packing, 2 + packing};
            Cost out = coding_cost(shape, ops, ops, Coding::apart);
            // Squares, added up per channel, and once sorted; projections in that order make keys and
            // queries.
            if (params.flag("sort")) out.prompt = out.prompt + over_keys(shape, shape.prompt, 2);
            return out;
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::block_float
