// Keys and values are spread over their channels by a fixed rotation before they are coded.
#include <algorithm>
#include <unordered_set>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/orthogonal.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::rotatekv {
namespace {

constexpr std::uint64_t kPositionBits = 32, kChannelBits = 16;

struct Rule {
  ScalarCode code{};
  std::size_t group = 128, heads = 4, first = 4, small = 16;
  bool hadamard = true, reorder = true, before = true;

  static Rule of(const Params& params) {
    Rule out;
    out.code = scalar_code(params, "rotatekv(" + params.text() + ")");
    out.code.kind = ScalarKind::integer;
    out.code.clip = static_cast<float>(params.share("clip"));
    out.group = params.count("group");
    out.heads = params.count("heads");
    out.first = params.count("first");
    out.small = params.count("small");
    out.hadamard = params.flag("hadamard");
    out.reorder = params.flag("reorder");
    out.before = params.is("positions", "before");
    return out;
  }
  std::size_t group_of(std::size_t numbers) const { return std::min(group, numbers); }
  /// KV heads whose keys are rotated together.
  std::size_t heads_of(std::size_t n_lanes) const { return std::min(heads, n_lanes); }
};

Ledger rotate_ledger(const Rule& rule, const StorageShape& shape, std::uint64_t sinks, std::uint64_t coded) {
  if (rule.code.exact()) return exact_ledger(shape, sinks + coded);
  Ledger out = exact_ledger(shape, sinks);
  const std::size_t keys = shape.n_lanes * shape.key_dim, values = shape.value_dim;
  out.codes = coded * (keys + shape.n_lanes * values) * rule.code.bits;
  out.parameters = coded * (keys / rule.group_of(keys) + shape.n_lanes * (values / rule.group_of(values))) *
                   rule.code.group_bits();
  out.indices = sinks * kPositionBits;
  if (rule.reorder) out.shared = keys * kChannelBits;
  return out;
}

/// The keys of a token of all lanes as one vector, and where its channels go.
class KeyRotation {
 public:
  KeyRotation(const Rule& rule, const CacheUnit& unit)
      : rule_(rule),
        dim_(static_cast<std::size_t>(unit.head_dim)),
        width_(dim_ * rule.heads_of(static_cast<std::size_t>(unit.n_lanes))) {}

  void take(const Prompt& prompt, std::size_t n_lanes) {
    if (rule_.before) rotary_ = prompt.rotary();
    order_.clear();
    if (!rule_.reorder || rule_.code.exact()) return;
    std::vector<double> sums(n_lanes * dim_);
    std::vector<float> key(sums.size());
    for (std::size_t row = 0; row < prompt.length(); ++row) {
      for (std::size_t lane = 0; lane < n_lanes; ++lane)
        std::ranges::copy(prompt.keys(static_cast<int>(lane)).row(row), key.data() + lane * dim_);
      bound(key);
      spread(prompt.first() + row, key);
      for (std::size_t c = 0; c < key.size(); ++c) sums[c] += static_cast<double>(key[c]);
    }
    order_ = least_first(sums);
  }

  void code(std::size_t position, std::vector<float>& key) const {
    spread(position, key);
    std::vector<float> sorted = key;
    for (std::size_t i = 0; i < order_.size(); ++i) sorted[i] = key[order_[i]];
    const std::size_t group = rule_.group_of(sorted.size());
    for (std::size_t first = 0; first < sorted.size(); first += group)
      rule_.code.code(sorted.data() + first, group);
    if (order_.empty()) key = sorted;
    for (std::size_t i = 0; i < order_.size(); ++i) key[order_[i]] = sorted[i];
    turn(key);
    if (rule_.before) rotate_heads(rotate, position, key);
  }

 private:
  void spread(std::size_t position, std::vector<float>& key) const {
    if (rule_.before) rotate_heads(unrotate, position, key);
    turn(key);
  }
  void turn(std::vector<float>& key) const {
    if (!rule_.hadamard) return;
    for (std::size_t first = 0; first < key.size(); first += width_) hadamard({key.data() + first, width_});
  }
  template <class Rotate>
  void rotate_heads(Rotate rotates, std::size_t position, std::vector<float>& key) const {
    for (std::size_t first = 0; first < key.size(); first += dim_)
      rotates(rotary_, position, dim_, std::span(key.data() + first, dim_));
  }

  Rule rule_;
  std::size_t dim_, width_;
  Rotary rotary_{};
  std::vector<std::size_t> order_;  ///< of the channels of all lanes; empty: as they come
};

class RotateCodec final : public Codec {
 public:
  RotateCodec(const Rule& rule, const KeyRotation& keys) : rule_(rule), keys_(&keys) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    choose_sinks(rows);
    for (std::size_t slot = 0; slot < rows.slots(); ++slot)
      if (!sinks_.contains(rows.positions()[slot])) code(slot, rows);
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> /*behind*/) override {
    for (const std::size_t victim : victims) sinks_.erase(rows.positions()[victim]);
  }
  /// The token's own query reads its code, too, as in the authors' code.
  void join(std::size_t own_slot, CacheRows& rows) override { code(own_slot, rows); }

  Ledger ledger(const CacheRows& rows) const override {
    return rotate_ledger(rule_, rows.shape(), sinks_.size(), rows.slots() - sinks_.size());
  }

 private:
  void choose_sinks(const CacheRows& rows) {
    std::vector<Position> order = ascending(rows.positions());
    const auto first = static_cast<std::ptrdiff_t>(std::min(rule_.first, order.size()));
    std::vector<double> squares(order.empty() ? 0 : static_cast<std::size_t>(order.back()) + 1);
    for (const Position position : order)
      for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane)
        for (const float x : rows.keys(lane).row(rows.slot_of(position)))
          squares[static_cast<std::size_t>(position)] += static_cast<double>(x) * static_cast<double>(x);
    std::stable_sort(order.begin() + first, order.end(), [&](Position a, Position b) {
      return squares[static_cast<std::size_t>(a)] < squares[static_cast<std::size_t>(b)];
    });
    order.resize(std::min(order.size(), rule_.first + rule_.small));
    sinks_.insert(order.begin(), order.end());
  }

  void code(std::size_t slot, CacheRows& rows) const {
    if (rule_.code.exact()) return;
    const std::size_t dim = rows.shape().key_dim;
    std::vector<float> key(rows.shape().n_lanes * dim);
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane)
      std::ranges::copy(rows.key(lane, slot), key.data() + lane * dim);
    bound(key);
    keys_->code(static_cast<std::size_t>(rows.positions()[slot]), key);
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) {
      std::copy_n(key.data() + lane * dim, dim, rows.key(lane, slot).begin());
      const std::span<float> value = rows.value(lane, slot);
      bound(value);
      if (rule_.hadamard) hadamard(value);
      const std::size_t group = rule_.group_of(value.size());
      for (std::size_t first = 0; first < value.size(); first += group)
        rule_.code.code(value.data() + first, group);
      if (rule_.hadamard) hadamard(value);
    }
  }

  Rule rule_;
  const KeyRotation* keys_;
  std::unordered_set<Position> sinks_;
};

class RotateKv final : public Representation {
 public:
  RotateKv(const Rule& rule, const CacheUnit& unit)
      : rule_(rule), keys_(rule, unit), n_lanes_(static_cast<std::size_t>(unit.n_lanes)) {}

  void finish_prompt(const Prompt& prompt) override { keys_.take(prompt, n_lanes_); }
  std::unique_ptr<Codec> codec() const override { return std::make_unique<RotateCodec>(rule_, keys_); }

 private:
  Rule rule_;
  KeyRotation keys_;
  std::size_t n_lanes_;
};

/// Throws Error(usage) where a unit's shape does not suit the rule.
void check_unit(const Rule& rule, const CacheUnit& unit, const std::string& where) {
  if (rule.code.exact()) return;
  const auto n_lanes = static_cast<std::size_t>(unit.n_lanes), heads = rule.heads_of(n_lanes);
  const auto keys = static_cast<std::size_t>(unit.head_dim),
             values = static_cast<std::size_t>(unit.value_dim);
  if (n_lanes % heads != 0)
    usage_error(std::to_string(heads) + " KV heads at a time do not divide " + std::to_string(n_lanes), where,
                "Choose heads= that does.");
  for (const std::size_t width : {heads * keys, values})
    if (rule.hadamard && !std::has_single_bit(width))
      usage_error("a vector of " + std::to_string(width) +
                      " numbers has no Walsh-Hadamard transform, whose size is a power of two",
                  where, "Choose another number of heads, or hadamard=false.");
  for (const std::size_t width : {n_lanes * keys, values})
    if (width % rule.group_of(width) != 0)
      usage_error("groups of " + std::to_string(rule.group) + " do not divide a vector of " +
                      std::to_string(width) + " numbers",
                  where, "Choose a group that does.");
}

/// Of values the transform is part of the projections, as the authors build it in.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  if (rule.code.exact()) return {};
  const CodeOps values = scalar_code_ops(rule.code);
  CodeOps keys = values;
  if (rule.hadamard) {
    const double transform =
        hadamard_ops(rule.heads_of(shape.kv_heads) * shape.head_dim);  // reading goes back
    keys.make += transform;
    keys.read += transform;
  }
  if (rule.before) keys.read += kRotationOps;
  Cost out = coding_cost(shape, keys, values, Coding::apart);
  if (rule.reorder) out.prompt = out.prompt + over_keys(shape, shape.prompt, 1);
  if (rule.small > 0) out.prompt = out.prompt + over_keys(shape, shape.prompt, 2);
  return out;
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t sinks = std::min<std::uint64_t>(held.kept, rule.first + rule.small);
  return rotate_ledger(rule, shape, sinks, held.all() - sinks);
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  const Rule rule = Rule::of(params);
  check_unit(rule, unit, "rotatekv(" + params.text() + ")");
  return std::make_unique<RotateKv>(rule, unit);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "rotatekv",
      .summary = "few bits after a rotation that spreads outliers over channels",
      .paper =
          "Su, Wei, Chen, Shen, Li, Yu, Yuan, RotateKV: Accurate and Robust 2-Bit KV Cache Quantization for "
          "LLMs via Outlier-Aware Adaptive Rotations, IJCAI 2025, https://arxiv.org/abs/2501.16383",
      .details =
          "Keys before the rotation of positions, of `heads` KV heads side by side, go through a "
          "Walsh-Hadamard transform; then the channels of all heads are sorted by their signed sums, so that "
          "each group of channels has numbers of one sign. Each token's groups have a scale and the code of "
          "0. Reading undoes all that and rotates to the position. Values: a transform per head, no sorting. "
          "Some tokens of the prompt stay exact; every generated one is coded, and its own query reads the "
          "code. Heads are rotated and sorted together where the eviction keeps one set of tokens per layer, "
          "as snapkv(unit=layer) does; elsewhere each KV head is by itself, and with one group per head "
          "sorting changes nothing.",
      .departures =
          {{"authors' code: channels are sorted by sums over a calibration text, the WikiText-2 test split",
            "a stand-in: over the keys of the prompt; the order is counted as a table that all sequences "
            "share"},
           {"authors' code: tokens stay exact that own the 20 largest hidden-state entries of the layer",
            "a stand-in, as hidden states are not recorded: the first tokens and those with the smallest "
            "keys, of what the eviction keeps of the prompt, and 32 bits for the position of each"},
           {"authors' code: clips at 2 bits only", "clip=1 clips nothing, and goes with 3 bits and more"},
           {"authors' code: counts 8 codes at 3 bits for the scale and has 2^3 - 1 steps",
            "2^bits - 1 steps"}},
      .params =
          {bits_param("2"),
           count_param("group", "128", {1, 1 << 20},
                       "that share a scale; all there are where those are fewer", "channels"),
           share_param("clip", "0.8",
                       "of a group's range that codes span; what lies beyond becomes its ends"),
           count_param("heads", "4", {1, 1 << 10},
                       "whose keys are rotated together, where so many share a set of tokens", "KV heads"),
           flag_param("hadamard", "true", "rotates; false: codes channels as they are"),
           flag_param("reorder", "true", "sorts channels of the keys by their signed sums"),
           choice_param("positions", "before", {"before", "after"},
                        "keys are coded before or after they are rotated to their positions"),
           count_param("first", "4", {0, 1 << 20}, "of the prompt that stay exact, the earliest", "tokens"),
           count_param("small", "16", {0, 1 << 20},
                       "of the others that stay exact, with the smallest norms of their keys", "tokens")},
      .needs_of =
          [](const Params& params) {
            return Needs{.keys = params.flag("reorder"), .queries = params.is("positions", "before")};
          },
      .cost = cost_of,
      .check = [](const Params& params) { Rule::of(params); },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::rotatekv
