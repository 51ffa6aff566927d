// Channels of the keys that queries hardly use are dropped.
#include <algorithm>
#include <deque>

#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::think {
namespace {

struct Rule {
  double ratio = 0.4;
  std::size_t window = 32, rows = 32;
  bool queries = true;

  static Rule of(const Params& params) {
    return {params.share("ratio"), params.count("window"), params.count("rows"), params.is("score", "query")};
  }
  std::size_t dropped(std::size_t dim) const {
    return static_cast<std::size_t>(ratio * static_cast<double>(dim));
  }
};

Ledger think_ledger(const Rule& rule, const StorageShape& shape, std::uint64_t exact, std::uint64_t pruned) {
  const std::size_t dropped = rule.dropped(shape.key_dim);
  if (dropped == 0) return exact_ledger(shape, exact + pruned);
  Ledger out = exact_ledger(shape, exact);
  out.exact += shape.n_lanes * pruned * shape.value_dim * shape.element_bits;
  out.codes = shape.n_lanes * pruned * (shape.key_dim - dropped) * shape.element_bits;
  out.indices = shape.n_lanes * shape.key_dim;
  return out;
}

class ThinkCodec final : public Codec {
 public:
  /// `dropped`: channels, per lane.
  ThinkCodec(const Rule& rule, const std::vector<std::vector<std::size_t>>& dropped)
      : rule_(rule), dropped_(&dropped) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    window_.assign(rows.positions().begin(), rows.positions().end());
    std::ranges::sort(window_);
    prune(rows);
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> /*behind*/) override {
    for (const std::size_t victim : victims) std::erase(window_, rows.positions()[victim]);
  }
  void settle(std::size_t own_slot, CacheRows& rows) override {
    window_.push_back(rows.positions()[own_slot]);
    prune(rows);
  }
  Ledger ledger(const CacheRows& rows) const override {
    return think_ledger(rule_, rows.shape(), window_.size(), rows.slots() - window_.size());
  }

 private:
  void prune(CacheRows& rows) {
    for (; window_.size() > rule_.window; window_.pop_front())
      for (std::size_t lane = 0; lane < dropped_->size(); ++lane)
        for (const std::size_t channel : (*dropped_)[lane])
          rows.key(lane, rows.slot_of(window_.front()))[channel] = 0;
  }

  Rule rule_;
  const std::vector<std::vector<std::size_t>>* dropped_;
  std::deque<Position> window_;  ///< tokens with all channels, in the order in which they joined
};

/// Adds the sum of squares of each channel over the last `n` rows.
void add_squares(MatrixView rows, std::size_t n, std::vector<double>& squares) {
  for (std::size_t i = rows.rows - std::min(n, rows.rows); i < rows.rows; ++i)
    for (std::size_t c = 0; c < squares.size(); ++c) {
      const auto x = static_cast<double>(rows(i, c));
      squares[c] += x * x;
    }
}

class Think final : public Representation {
 public:
  Think(const Rule& rule, const CacheUnit& unit) : rule_(rule), unit_(unit) {}

  void finish_prompt(const Prompt& prompt) override {
    const auto dim = static_cast<std::size_t>(unit_.head_dim);
    dropped_.clear();
    for (int lane = 0; lane < unit_.n_lanes; ++lane) {
      std::vector<double> scores(dim);
      add_squares(prompt.keys(lane), prompt.length(), scores);
      if (rule_.queries) {
        std::vector<double> queries(dim);
        for (int head = lane * unit_.group; head < (lane + 1) * unit_.group; ++head)
          add_squares(prompt.queries(head), rule_.rows, queries);
        for (std::size_t c = 0; c < dim; ++c) scores[c] *= queries[c];
      }
      dropped_.push_back(least_first(scores));
      dropped_.back().resize(rule_.dropped(dim));
    }
  }
  std::unique_ptr<Codec> codec() const override { return std::make_unique<ThinkCodec>(rule_, dropped_); }

 private:
  Rule rule_;
  CacheUnit unit_;
  std::vector<std::vector<std::size_t>> dropped_;
};

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t tokens = held.all(), exact = std::min<std::uint64_t>(tokens, rule.window);
  return think_ledger(rule, shape, exact, tokens - exact);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "think",
      .summary = "drops the key channels that the last queries of the prompt use least",
      .paper =
          "Xu, Jie, Dong, Wang, Lu, Zhou, Saha, Xiong, Sahoo, ThinK: Thinner Key Cache by Query-Driven "
          "Pruning, ICLR 2025, https://arxiv.org/abs/2407.21018",
      .details =
          "A channel's score is the sum of its squares over the last prompt queries, of all query heads of a "
          "KV head, times that over all keys of the prompt: up to a factor, how much it adds to the products "
          "of queries and keys. The lowest are dropped from all keys but the newest; they read as 0, which "
          "is the same as dropping the query's channels, too. A token loses them as it leaves the window. "
          "Values stay as they come.",
      .departures = {{"authors' code: keys are repeated for each query head first, so each query head has "
                      "channels of its own",
                      "channels are those of a KV head, whose keys are stored once; scores are added up over "
                      "its query heads"}},
      .params = {share_param("ratio", "0.4", "of the channels that are dropped, rounded down"),
                 count_param("window", "32", {0, 1 << 20}, "the newest so many keep all channels", "tokens"),
                 count_param("rows", "32", {1, 1 << 20},
                             "last ones of the prompt, by which channels are scored", "queries"),
                 choice_param("score", "query", {"query", "key"},
                              "query: of queries and keys; key: of the keys alone, for comparison")},
      .needs_of =
          [](const Params& params) { return Needs{.keys = true, .queries = params.is("score", "query")}; },
      .cost =
          [](const Params& params, const CostShape& shape) {
            const Rule rule = Rule::of(params);
            Cost out;
            if (rule.dropped(shape.head_dim) == 0) return out;
            // Squares, added up per channel; channels are sorted once per head, which is little.
            out.prompt = over_keys(shape, shape.prompt, 2);
            if (rule.queries) {
              const double components =
                  real(std::min(rule.rows, shape.prompt)) * real(shape.query_heads * shape.head_dim);
              out.prompt =
                  out.prompt +
                  Work{.ops = 2 * components, .bytes = components * real(shape.element_bytes), .launches = 1};
            }
            // Keys are read and what remains of them is written. Reading takes nothing: the query has no
            // component for a dropped channel.
            out.prompt = out.prompt + 2.0 * over_keys(shape, std::min(shape.prompt, shape.budget), 0);
            out.step = 2.0 * over_keys(shape, 1, 0);
            return out;
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = made<Think, Rule>}};
}

}  // namespace kvsim::policy::think
