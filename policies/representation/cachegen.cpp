// The prompt as whole numbers of fewer steps the deeper the layer, as a cache is sent.
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/codes/scalar_code.hpp"

namespace kvsim::policy::cachegen {
namespace {

/// What a layer's numbers are divided into. With an even number of bins there are as many steps above 0 as
/// below it, and the last bin is not used.
struct Bins {
  unsigned keys = 0, values = 0;
};

/// The layers of the released code's table, of a model with 32.
constexpr std::uint64_t kDepth = 32, kFirstKeys = 10, kSecondKeys = 20, kFirstValues = 2;
constexpr unsigned kMostBins[3] = {16, 32, 32};  ///< of any layer, by level
/// Of 8 bits: anchors, and differences in steps of their channel's deviation.
constexpr unsigned kByteBins = 256;
constexpr std::uint64_t kScaleBits = 16, kTableEntryBits = 16, kRunLengthBits = 32;
constexpr std::size_t kRun = 256;  ///< tokens of a channel that the arithmetic coder codes at once

struct Rule {
  std::uint64_t level = 2;
  std::size_t anchors = 0;  ///< tokens of a group, the first of which is its anchor; 0: no groups
  bool by_deviation = false, own_tables = true;

  static Rule of(const Params& params) {
    return {std::stoull(params.word("level")), params.count("anchors"), params.is("bins", "deviation"),
            params.is("tables", "own")};
  }

  Bins bins(std::uint64_t layer, std::uint64_t n_layers) const {
    if (by_deviation) return {kByteBins, kByteBins};
    constexpr unsigned kKeys[3][3] = {{16, 16, 12}, {32, 16, 16}, {32, 32, 32}};
    constexpr unsigned kValues[3][2] = {{16, 12}, {32, 16}, {32, 32}};
    const std::uint64_t depth = layer * kDepth;
    const std::size_t part = depth < kFirstKeys * n_layers ? 0 : depth < kSecondKeys * n_layers ? 1 : 2;
    return {kKeys[level - 1][part], kValues[level - 1][depth < kFirstValues * n_layers ? 0 : 1]};
  }
  /// Width of a bin, in deviations of the channel: of the first, the second and the last third of the layers.
  static float width(std::uint64_t layer, std::uint64_t n_layers) {
    return 0.5F * static_cast<float>(1 + 3 * layer / n_layers);
  }
  unsigned most_bins() const { return by_deviation ? kByteBins : kMostBins[level - 1]; }
};

/// Tokens of the prompt that are held: how many codes of each kind there are.
struct Coded {
  std::uint64_t anchors = 0;  ///< also those that only the differences of others need
  std::uint64_t others = 0;
};

/// Of a token's numbers in all lanes of a unit.
std::uint64_t code_bits(unsigned bins, std::uint64_t numbers) {
  return static_cast<std::uint64_t>(std::ceil(static_cast<double>(numbers) * std::log2(bins)));
}

Ledger cachegen_ledger(const Rule& rule, const StorageShape& shape, const Coded& coded, std::uint64_t exact) {
  const Bins bins = rule.bins(shape.layer, shape.n_layers);
  const std::uint64_t keys = shape.n_lanes * shape.key_dim, values = shape.n_lanes * shape.value_dim;
  Ledger out = exact_ledger(shape, exact);
  out.codes = coded.anchors * code_bits(kByteBins, keys + values) +
              coded.others * (code_bits(bins.keys, keys) + code_bits(bins.values, values));
  out.parameters = coded.anchors * 2 * kScaleBits;
  if (!rule.by_deviation)
    out.parameters += coded.others * 2 * kScaleBits;
  else if (coded.others > 0)
    out.tables = (keys + values) * kScaleBits;
  return out;
}

/// Finds the codes of the keys, or of the values, of a prompt, all lanes of the unit side by side.
class Coder {
 public:
  explicit Coder(std::size_t channels) : channels_(channels) {}

  /// The next token.
  void add(std::span<const float> lane) { numbers_.insert(numbers_.end(), lane.begin(), lane.end()); }
  /// After the last one: what each token reads back as, at read(token).
  void code(const Rule& rule, unsigned bins, float width) {
    bound(numbers_);
    symbols_.resize(numbers_.size());
    const std::size_t tokens = numbers_.size() / channels_;
    const auto is_anchor = [&](std::size_t token) { return rule.anchors > 0 && token % rule.anchors == 0; };
    for (std::size_t token = 0; token < tokens; ++token)
      if (is_anchor(token)) code_by_largest(token, kByteBins);
    const auto anchor = [&](std::size_t token) { return read(token - token % rule.anchors); };
    if (rule.anchors > 0)
      for (std::size_t token = 0; token < tokens; ++token)
        if (!is_anchor(token))
          for (std::size_t c = 0; c < channels_; ++c) number(token, c) -= anchor(token)[c];
    std::vector<std::size_t> others;
    for (std::size_t token = 0; token < tokens; ++token)
      if (!is_anchor(token)) others.push_back(token);
    if (rule.by_deviation)
      code_by_deviation(others, width);
    else
      for (const std::size_t token : others) code_by_largest(token, bins);
    if (rule.anchors > 0)
      for (const std::size_t token : others)
        for (std::size_t c = 0; c < channels_; ++c) number(token, c) += anchor(token)[c];
  }
  std::span<const float> read(std::size_t token) const {
    return {numbers_.data() + token * channels_, channels_};
  }

  /// Anchors and the others have tables of their own, and so has each channel.
  std::uint64_t sent_bits(const Rule& rule) const {
    const std::size_t tokens = symbols_.size() / channels_;
    std::uint64_t bits = 0;
    std::vector<std::int8_t> anchors, others;
    for (std::size_t c = 0; c < channels_; ++c) {
      anchors.clear();
      others.clear();
      for (std::size_t token = 0; token < tokens; ++token)
        (rule.anchors > 0 && token % rule.anchors == 0 ? anchors : others)
            .push_back(symbols_[token * channels_ + c]);
      bits += stream_bits(anchors, kByteBins, rule) + stream_bits(others, rule.most_bins(), rule);
    }
    return bits;
  }

 private:
  float& number(std::size_t token, std::size_t channel) { return numbers_[token * channels_ + channel]; }

  /// The numbers of a token in all lanes share a scale. Halves round to even.
  void code_by_largest(std::size_t token, unsigned bins) {
    float largest = 0;
    for (std::size_t c = 0; c < channels_; ++c) largest = std::max(largest, std::fabs(number(token, c)));
    const unsigned above_zero = bins / 2 - 1;
    const auto steps = static_cast<float>(above_zero);
    const float scale = nearest_half(largest) / steps;
    for (std::size_t c = 0; c < channels_; ++c) quantise(token, c, scale, steps);
  }
  /// A channel's step is a share of the root mean square of its numbers, which is stored in 16 bits.
  void code_by_deviation(std::span<const std::size_t> tokens, float width) {
    constexpr auto kSteps = static_cast<float>(kByteBins / 2 - 1);
    for (std::size_t c = 0; c < channels_; ++c) {
      double squares = 0;
      for (const std::size_t token : tokens) {
        const auto x = static_cast<double>(number(token, c));
        squares += x * x;
      }
      const double mean = tokens.empty() ? 0 : squares / static_cast<double>(tokens.size());
      const float scale = width * nearest_half(static_cast<float>(std::sqrt(mean)));
      for (const std::size_t token : tokens) quantise(token, c, scale, kSteps);
    }
  }
  void quantise(std::size_t token, std::size_t channel, float scale, float steps) {
    float& x = number(token, channel);
    const float code = scale > 0 ? std::clamp(std::nearbyint(x / scale), -steps, steps) : 0;
    symbols_[token * channels_ + channel] = static_cast<std::int8_t>(code);
    x = code * scale;
  }

  static std::uint64_t stream_bits(std::span<const std::int8_t> symbols, unsigned bins, const Rule& rule) {
    if (symbols.empty()) return 0;
    const std::uint64_t runs = (symbols.size() + kRun - 1) / kRun;
    return 8 * entropy_coded_bytes(symbols, kRun) + runs * kRunLengthBits +
           (rule.own_tables ? (bins + 1) * kTableEntryBits : 0);
  }

  std::size_t channels_;
  std::vector<float> numbers_{};  ///< [tokens][channels]
  std::vector<std::int8_t> symbols_{};
};

class CacheGenCodec final : public Codec {
 public:
  explicit CacheGenCodec(const Rule& rule) : rule_(rule) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    joined_ = ascending(rows.positions());
    const StorageShape& shape = rows.shape();
    const Bins bins = rule_.bins(shape.layer, shape.n_layers);
    const auto code = [&](std::size_t dim, unsigned bins_of, const auto& row) {
      Coder coder(shape.n_lanes * dim);
      for (const Position position : joined_)
        for (std::size_t lane = 0; lane < shape.n_lanes; ++lane) coder.add(row(lane, rows.slot_of(position)));
      coder.code(rule_, bins_of, Rule::width(shape.layer, shape.n_layers));
      for (std::size_t i = 0; i < joined_.size(); ++i)
        for (std::size_t lane = 0; lane < shape.n_lanes; ++lane)
          std::ranges::copy(coder.read(i).subspan(lane * dim, dim),
                            row(lane, rows.slot_of(joined_[i])).begin());
      sent_bits_ += coder.sent_bits(rule_);
    };
    code(shape.key_dim, bins.keys, [&](std::size_t lane, std::size_t slot) { return rows.key(lane, slot); });
    code(shape.value_dim, bins.values,
         [&](std::size_t lane, std::size_t slot) { return rows.value(lane, slot); });
    const Ledger ledger = this->ledger(rows);
    sent_bits_ += ledger.parameters + ledger.tables;
  }
  Ledger ledger(const CacheRows& rows) const override {
    Coded coded;
    std::uint64_t held = 0;
    std::vector<char> group_lives(rule_.anchors > 0 ? joined_.size() / rule_.anchors + 1 : 0);
    for (const Position position : rows.positions()) {
      if (joined_.empty() || position > joined_.back()) continue;
      ++held;
      const auto rank =
          static_cast<std::size_t>(std::ranges::lower_bound(joined_, position) - joined_.begin());
      if (rule_.anchors > 0) group_lives[rank / rule_.anchors] = 1;
      if (rule_.anchors == 0 || rank % rule_.anchors > 0) ++coded.others;
    }
    coded.anchors = static_cast<std::uint64_t>(std::ranges::count(group_lives, 1));
    return cachegen_ledger(rule_, rows.shape(), coded, rows.slots() - held);
  }
  std::optional<std::uint64_t> sent_bits() const override { return sent_bits_; }

 private:
  Rule rule_;
  std::vector<Position> joined_{};  ///< of the prompt, ascending; later positions are exact
  std::uint64_t sent_bits_ = 0;
};

/// As a scale alone; a difference is made and undone. Generated tokens stay as they come. The arithmetic
/// coder works when a cache is sent and is not priced.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  CodeOps ops = scalar_code_ops({ScalarKind::absmax, rule.by_deviation ? 8U : 5U});
  if (rule.anchors > 0) ops = {ops.make + 1, ops.read + 1};
  Cost out = coding_cost(shape, ops, ops, Coding::apart);
  out.step = {};
  return out;
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t anchors = rule.anchors > 0 ? (held.kept + rule.anchors - 1) / rule.anchors : 0;
  return cachegen_ledger(rule, shape, {anchors, held.kept - anchors}, held.appended);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "cachegen",
      .summary = "the prompt in whole numbers of fewer steps the deeper the layer, as a cache is sent",
      .paper =
          "Liu, Li, Cheng, Ray, Huang, Zhang, Du, Yao, Lu, Ananthanarayanan, Maire, Hoffmann, Holtzman, "
          "Jiang, CacheGen: KV Cache Compression and Streaming for Fast Large Language Model Serving, "
          "SIGCOMM 2024, https://arxiv.org/abs/2310.07240",
      .details =
          "As the released code: a token's keys, and its values, of all heads share a 16-bit scale, their "
          "largest |x|; with `bins` there are bins/2 - 1 whole numbers on each side of 0, halves to even. "
          "Bins by depth, keys in the first 10, the next 10 and the last 12 of 32 layers and values in the "
          "first 2 and the rest: 32,32,32 and 32,32 at level 3; 32,16,16 and 32,16 at level 2; 16,16,12 and "
          "16,12 at level 1. Other depths are divided in proportion. Generated tokens stay as they come: the "
          "cache of a prompt is what is sent. Held are log2(bins) bits per number and two scales per token; "
          "`sent_bytes` has what an arithmetic coder makes of them, by the counts of each channel of a "
          "layer: in runs of 256 tokens, rounded up to bytes, with a length of 4 bytes per run, the scales, "
          "and with tables=own a table of 16 bits per bin and channel. With `anchors`, so many successive "
          "tokens that are held are a group: its first is coded in 8 bits, and the others' differences to "
          "what it reads back as are coded. An anchor lives as long as one of its group. With "
          "bins=deviation, a bin is 0.5, 1 and 1.5 times as wide, by thirds of the depth, as the root mean "
          "square of what is coded in its channel, and a number is held in 8 bits, at most 127 bins from 0.",
      .departures =
          {{"paper: the differences of groups of ten tokens to an anchor are coded; authors' code has no "
            "anchors",
            "as the code; `cachegen.paper` has the paper's"},
           {"paper: the unit of its bin widths of 0.5, 1 and 1.5 is not known to us",
            "the root mean square of what is coded in a channel"},
           {"paper: its tables of symbols are counted on other prompts",
            "on the prompt itself, as in the authors' code; with tables=shared they are not counted as sent"},
           {"authors' code: all heads of a layer share a token's scale",
            "where the eviction keeps a set of tokens per layer; elsewhere each KV head has its own"},
           {"authors' code: 80 layers have a table of their own", "the proportions of 32 layers"}},
      .params = {choice_param("level", "2", {"3", "2", "1"},
                              "of quality, with bins=table: 3 has most bins, 1 fewest"),
                 count_param("anchors", "0", {0, 1 << 20},
                             "of a group, whose differences to the first of them are coded; 0: none are",
                             "tokens"),
                 choice_param(
                     "bins", "table", {"table", "deviation"},
                     "table: as many as the level says, over a token's largest number; deviation: as wide as "
                     "a share of the channel's deviation, wider the deeper the layer"),
                 choice_param(
                     "tables", "own", {"own", "shared"},
                     "of the arithmetic coder: own are sent with the prompt, shared are known already")},
      .cost = cost_of,
      .rule = RepresentationRule{.by_depth = true,
                                 .ledger = ledger_of,
                                 .make = made<PlainRepresentation<CacheGenCodec, Rule>, Rule>}};
}

}  // namespace kvsim::policy::cachegen
