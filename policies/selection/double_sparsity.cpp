// Double Sparsity: logits from a few channels that other runs have shown to matter, in few bits.
#include <algorithm>
#include <cmath>
#include <vector>

#include "policies/parts/codes/calibrated_tables.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/index/reading.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::double_sparsity {
namespace {

constexpr std::size_t kExactBits = 16;

struct Rule {
  Amount read;
  std::size_t group_factor = 16;
  ScalarCode label;
  std::string order;

  static Rule of(const Params& params) {
    return {params.amount("read"), params.count("group_factor"),
            scalar_code(params, "double_sparsity(" + params.text() + ")"), params.word("order")};
  }
  std::size_t channels(std::size_t dim) const { return std::max<std::size_t>(1, dim / group_factor); }
  /// Query heads of a KV head read the same labels: what orders the channels is the keys' alone.
  bool shares_labels() const { return order == "k"; }
  std::uint64_t label_bits(std::size_t dim) const {
    return channels(dim) * (label.exact() ? kExactBits : label.bits) + label.group_bits();
  }
};

std::string maker(const Params& params) {
  return calibration_maker("double_sparsity", params, {});
}

/// Mean magnitudes of the channels of one KV head and the queries that share it: of queries and keys before
/// rotation, and of the products of a token's own query and key.
class ChannelSizes {
 public:
  ChannelSizes(std::size_t group, std::size_t dim)
      : dim_(dim), queries_(group * dim), keys_(dim), products_(group * dim) {}

  /// Row r stands at position `first` + r.
  void add(std::span<const MatrixView> queries, const MatrixView& keys, const Rotary& rotary,
           std::size_t first = 0) {
    std::vector<float> plain(dim_);
    const auto add_plain = [&](std::span<const float> row, std::size_t position, double* sums) {
      std::ranges::copy(row, plain.begin());
      unrotate(rotary, first + position, dim_, plain);
      for (std::size_t c = 0; c < dim_; ++c) sums[c] += static_cast<double>(std::fabs(plain[c]));
    };
    for (std::size_t i = 0; i < keys.rows; ++i) {
      add_plain(keys.row(i), i, keys_.data());
      for (std::size_t g = 0; g < queries.size(); ++g) {
        add_plain(queries[g].row(i), i, queries_.data() + g * dim_);
        for (std::size_t c = 0; c < dim_; ++c)
          products_[g * dim_ + c] +=
              std::fabs(static_cast<double>(queries[g](i, c)) * static_cast<double>(keys(i, c)));
      }
    }
    tokens_ += keys.rows;
  }
  std::size_t tokens() const { return tokens_; }
  /// Per query head, but of order k per KV head: [heads][dim].
  std::vector<float> of(std::string_view order) const {
    const std::vector<double>& sums = order == "q" ? queries_ : order == "k" ? keys_ : products_;
    std::vector<float> out;
    for (const double sum : sums) out.push_back(static_cast<float>(sum / static_cast<double>(tokens_)));
    return out;
  }

 private:
  std::size_t dim_, tokens_ = 0;
  std::vector<double> queries_, keys_, products_;
};

constexpr const char* kTables[] = {"q", "k", "qk"};

class ChannelCalibrator final : public Calibrator {
 public:
  explicit ChannelCalibrator(const CacheUnit& layer)
      : group_(static_cast<std::size_t>(layer.group)),
        lanes_(static_cast<std::size_t>(layer.n_lanes),
               ChannelSizes(group_, static_cast<std::size_t>(layer.head_dim))) {}

  bool needs_queries() const override { return true; }
  void observe(const LayerTokens& tokens) override {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      lanes_[lane].add(std::span(tokens.queries).subspan(lane * group_, group_), tokens.keys[lane],
                       tokens.rotary);
  }
  std::vector<CalibratedTable> tables() override {
    if (lanes_[0].tokens() == 0) input_error("no token is there to measure", "double_sparsity");
    std::vector<CalibratedTable> out;
    for (const char* order : kTables) {
      out.push_back({std::string("mean_") + order, {}});
      for (const ChannelSizes& lane : lanes_) out.back().of_head.push_back(lane.of(order));
    }
    return out;
  }

 private:
  std::size_t group_;
  std::vector<ChannelSizes> lanes_;
};

/// Per set of labels, its channels in ascending order.
using Channels = std::vector<std::vector<std::size_t>>;

class LabelSelector final : public UnitSelector {
 public:
  LabelSelector(const Rule& rule, const CacheUnit& unit, const Channels& channels)
      : UnitSelector(unit), rule_(rule), channels_(channels), labels_(channels.size()) {}

  void begin(const Prompt& /*prompt*/, const StoredTokens& tokens) override { joined(0, 0, tokens); }
  void joined(std::size_t own_slot, std::size_t moved_from, const StoredTokens& tokens) override {
    for (std::vector<float>& set : labels_) set.resize(tokens.slots() * rule_.channels(dim_));
    for_changed(own_slot, moved_from, tokens, [&](std::size_t slot) { label(slot, tokens); });
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), count = rule_.read.of(slots);
    if (count >= slots) return reads.everything(slots);
    const std::size_t n = rule_.channels(dim_);
    const float scale = 1 / std::sqrt(static_cast<float>(n));
    scores_.resize(slots);
    query_.resize(n);
    for (std::size_t head = 0; head < reads.heads(); ++head) {
      const std::size_t set = rule_.shares_labels() ? head / group_ : head;
      for (std::size_t i = 0; i < n; ++i) query_[i] = scale * asking.queries(head, channels_[set][i]);
      for (std::size_t slot = 0; slot < slots; ++slot) {
        float sum = tokens.bias(head / group_, slot);
        for (std::size_t i = 0; i < n; ++i) sum += query_[i] * labels_[set][slot * n + i];
        scores_[slot] = sum;
      }
      highest_scores(scores_, count, reads.of(head));
    }
    reads.index_bits += index_bits();
  }

  std::uint64_t index_bits() const override {
    return labels_.size() * (labels_[0].size() / rule_.channels(dim_)) * rule_.label_bits(dim_);
  }

 private:
  void label(std::size_t slot, const StoredTokens& tokens) {
    const std::size_t n = rule_.channels(dim_);
    for (std::size_t set = 0; set < labels_.size(); ++set) {
      const std::span<const float> key = tokens.key(rule_.shares_labels() ? set : set / group_, slot);
      float* of = labels_[set].data() + slot * n;
      for (std::size_t i = 0; i < n; ++i) of[i] = key[channels_[set][i]];
      rule_.label.code(of, n);
    }
  }

  Rule rule_;
  const Channels& channels_;
  std::vector<std::vector<float>> labels_;  ///< per set [slots][channels], as their codes read
  std::vector<float> query_, scores_;       // scratch
};

class DoubleSparsity final : public Selection {
 public:
  DoubleSparsity(const Params& params, const CacheUnit& unit)
      : rule_(Rule::of(params)),
        unit_(unit),
        tables_(maker(params), params, unit),
        from_prompt_(measures_prompt(params)) {
    if (from_prompt_ || !tables_.readable()) return;
    const std::size_t heads = rule_.shares_labels() ? 1 : static_cast<std::size_t>(unit.group);
    for (int lane = 0; lane < unit.n_lanes; ++lane)
      choose(tables_.lane("mean_" + rule_.order, lane, heads * static_cast<std::size_t>(unit.head_dim)));
  }

  void finish_prompt(const Prompt& prompt) override {
    if (!from_prompt_) return;
    for (int lane = 0; lane < unit_.n_lanes; ++lane) {
      ChannelSizes sizes(static_cast<std::size_t>(unit_.group), static_cast<std::size_t>(unit_.head_dim));
      std::vector<MatrixView> queries;
      for (int g = 0; g < unit_.group; ++g) queries.push_back(prompt.queries(lane * unit_.group + g));
      sizes.add(queries, prompt.keys(lane), prompt.rotary(), prompt.first());
      choose(sizes.of(rule_.order));
    }
  }
  std::unique_ptr<Selector> selector() const override {
    return std::make_unique<LabelSelector>(rule_, unit_, channels_);
  }

 private:
  /// The channels of the largest means, of each head in [heads][dim].
  void choose(const std::vector<float>& means) {
    const auto dim = static_cast<std::size_t>(unit_.head_dim);
    for (std::size_t first = 0; first < means.size(); first += dim) {
      std::vector<std::size_t>& chosen = channels_.emplace_back();
      highest_scores(std::span(means).subspan(first, dim), rule_.channels(dim), chosen);
      std::ranges::sort(chosen);
    }
  }

  Rule rule_;
  CacheUnit unit_;
  CalibratedTables tables_;
  bool from_prompt_;
  Channels channels_;
};

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = Rule::of(params);
  const std::size_t sets = rule.shares_labels() ? shape.kv_heads : shape.query_heads,
                    count = rule.read.of(stored);
  ReadCount out = chosen_reads(shape, stored, static_cast<double>(count));
  out.index_bytes = static_cast<double>(sets * stored * rule.label_bits(shape.head_dim)) / 8;
  if (count < stored) out.index_bytes_read = out.index_bytes;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "double_sparsity",
      .summary = "reads the tokens of the highest logits by a few fixed channels, kept in few bits",
      .paper =
          "Yang, Sheng, Gonzalez, Stoica, Zheng, Post-Training Sparse Attention with Double Sparsity, arXiv "
          "2408.07092",
      .details =
          "Other runs say which sixteenth of the channels matters to a query head: those of the largest mean "
          "|q * k|, of a token's own query and key. These channels of every key are kept once more, as a "
          "label of 4-bit codes between its least and its largest number. A query head reads the tokens of "
          "the highest products with the labels; the first two layers read everything. Query heads that "
          "share keys have labels of their own, but with order=k.",
      .departures =
          {{"paper: calibrated on other texts",
            "that is file=, made by kvsim calibrate; the default, file=prompt, measures the prompt itself "
            "and stands in for it"},
           {"authors' code: labels before they are quantised count as bits x channels, so 4 bits of a "
            "sixteenth and a sixteenth of the tokens are 1/14.2 of the bytes",
            "scale and least number of a label count, too: 32 bits, 1/12.8"},
           {"authors' code: calibrates q, k and qk, and its script for perplexity takes q",
            "order=qk, the channel's part in logits, unless order= says otherwise"},
           {"authors' evaluation: rounds the query's channels to as many bits, too", "the query is exact"},
           {"authors' offloading: layer l predicts what layer l + 1 reads", "not here"}},
      .params = with_optional_calibration(
          {read_param("6.25%"),
           count_param("group_factor", "16", {1, 4096}, "of so many channels, one is kept in labels"),
           bits_param("4"),
           choice_param(
               "order", "qk", {"qk", "q", "k"},
               "which channels matter: those of the largest mean |q * k|; |q| or |k|, before rotation"),
           dense_param(2)}),
      .needs_of =
          [](const Params& params) { return Needs{.keys = true, .queries = measures_prompt(params)}; },
      .check = [](const Params& params) { Rule::of(params); },
      .calibration_maker = maker,
      .make_calibrator = [](const Params& /*params*/, const CacheUnit& layer) -> std::unique_ptr<Calibrator> {
        return std::make_unique<ChannelCalibrator>(layer);
      },
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selected<DoubleSparsity>}};
}

}  // namespace kvsim::policy::double_sparsity
