// Ranks by what the last queries attend among the tokens before them, and goes on while an answer is written.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/pooling.hpp"
#include "policies/parts/rows/window_rows.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::observation_window {
namespace {

struct ObservedRule {
  std::size_t rows = 1;  ///< the last queries
  bool product = false;  ///< of the heads' attention, which adds their logits; else its mean
  bool largest = false;  ///< of the rows; else their mean
};

/// What the last queries attend over the slots of a unit, kept from step to step (MorphKV, arXiv 2503.00979),
/// each row known up to a factor of its own.
class ObservedRows {
 public:
  ObservedRows(const ObservedRule& rule, std::size_t heads)
      : rule_(rule), heads_(heads), shares_(rule.product ? 1 : heads) {}

  /// A row over `slots` slots, of which head(h, slot) is what query head h pays.
  template <class Head>
  void add(std::size_t slots, Head head) {
    if (rows_.size() == rule_.rows)
      std::rotate(rows_.begin(), rows_.begin() + 1, rows_.end());
    else
      rows_.emplace_back();
    std::vector<double>& row = rows_.back();
    row.assign(slots * shares_, rule_.product ? 1.0 : 0.0);
    for (std::size_t slot = 0; slot < slots; ++slot)
      for (std::size_t h = 0; h < heads_; ++h) {
        if (rule_.product)
          row[slot] *= head(h, slot);
        else
          row[slot * shares_ + h] = head(h, slot);
      }
  }
  /// No row has seen the token that joins at `own`.
  void admit(std::size_t own, std::size_t slots) {
    for (std::vector<double>& row : rows_) {
      row.resize(slots * shares_);
      std::fill_n(row.begin() + static_cast<std::ptrdiff_t>(own * shares_), shares_, 0.0);
    }
  }
  void close(std::span<const std::size_t> victims) {
    for (std::vector<double>& row : rows_) close_up(row, victims, shares_);
  }

  /// Scores of the slots that are `older` than the window: each row is shared out among these alone.
  void score(const std::vector<char>& older, std::span<double> scores) {
    std::fill(scores.begin(), scores.end(), 0.0);
    const auto of =
        static_cast<double>(shares_ * (rule_.largest ? 1 : std::max<std::size_t>(1, rows_.size())));
    for (const std::vector<double>& row : rows_) {
      sums_.assign(shares_, 0.0);
      for (std::size_t slot = 0; slot < scores.size(); ++slot)
        for (std::size_t s = 0; s < shares_ && older[slot]; ++s) sums_[s] += row[slot * shares_ + s];
      for (std::size_t slot = 0; slot < scores.size(); ++slot) {
        double x = 0;
        for (std::size_t s = 0; s < shares_ && older[slot]; ++s)
          if (sums_[s] > 0) x += row[slot * shares_ + s] / sums_[s] / of;
        scores[slot] = rule_.largest ? std::max(scores[slot], x) : scores[slot] + x;
      }
    }
  }

 private:
  ObservedRule rule_;
  std::size_t heads_, shares_;               ///< query heads; how many of them have a share of their own
  std::vector<std::vector<double>> rows_{};  ///< [slots, shares] each, the oldest first
  std::vector<double> sums_{};
};

ObservedRule rule_of(const Params& params) {
  return {params.count("window"), params.is("heads", "product"), params.is("rows", "max")};
}

class WindowDecoder final : public ScoredDecoder {
 public:
  WindowDecoder(const KeepRule& selection, std::vector<double> scores, const Pooling& pool, ObservedRows rows)
      : ScoredDecoder(selection, std::move(scores)), pool_(pool), rows_(std::move(rows)) {}

  void observe(const Step& step) override {
    admit(step, 0);
    rows_.admit(step.own_slot, step.slots.size());
    rows_.add(step.slots.size(), [&](std::size_t head, std::size_t slot) {
      return static_cast<double>(step.attention(head, slot)) * renormalise(step, head);
    });
  }
  void rescore(const Arrival& arrival) override {
    const auto window = static_cast<Position>(selection().protection.window);
    older_.assign(arrival.slots.size(), 0);
    for (std::size_t slot = 0; slot < older_.size(); ++slot)
      older_[slot] = arrival.position - arrival.slots[slot] >= window;
    rows_.score(older_, scores());
    if (pool_.kind != Pooling::Kind::none) smooth(arrival.slots);
  }
  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    rows_.close(victims);
  }

 private:
  /// Along the positions that are held.
  void smooth(std::span<const Position> slots) {
    std::vector<std::size_t> order;
    for (const std::size_t slot : least_first(slots))
      if (older_[slot]) order.push_back(slot);
    std::vector<double> along;
    for (const std::size_t slot : order) along.push_back(scores()[slot]);
    along = pooled(pool_, along);
    for (std::size_t i = 0; i < order.size(); ++i) scores()[order[i]] = along[i];
  }

  Pooling pool_;
  ObservedRows rows_;
  std::vector<char> older_{};
};

class ObservationWindow final : public ScoredEviction {
 public:
  ObservationWindow(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        rule_(rule_of(params)),
        pool_(Pooling::parse(params.word("pool"))),
        decodes_(params.flag("decode")),
        rows_(unit.n_query_heads(), rule_.rows) {}

  std::size_t prompt_rows() const override { return rows_.window(); }
  void observe(const PromptRows& rows) override { rows_.add(rows); }

 private:
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<Position> all(prompt.length());
    for (std::size_t j = 0; j < all.size(); ++j) all[j] = static_cast<Position>(j);
    std::vector<char> older(all.size());
    std::fill_n(older.begin(), rows_.older(), 1);
    std::vector<double> out(all.size());
    last_rows(rule_, all).score(older, out);
    out.resize(rows_.older());
    out = pooled(pool_, out);
    out.resize(all.size());
    return out;
  }

  ObservedRows last_rows(const ObservedRule& rule, std::span<const Position> slots) const {
    ObservedRows out(rule, rows_.n_heads());
    for (std::size_t i = 0; i < rows_.count(); ++i)
      out.add(slots.size(), [&](std::size_t head, std::size_t slot) {
        return static_cast<double>(rows_.whole(head, i)[static_cast<std::size_t>(slots[slot])]);
      });
    return out;
  }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    if (!decodes_) return nullptr;
    ObservedRule rule = rule_;
    rule.rows =
        std::max<std::size_t>(1, rule.rows - 1);  // the arriving token is in the window and has no row yet
    return std::make_unique<WindowDecoder>(selection(budget), scores_of(slots), pool_,
                                           last_rows(rule, slots));
  }

  ObservedRule rule_;
  Pooling pool_;
  bool decodes_;
  WindowRows rows_;
};

Cost cost_of(const Params& params, const CostShape& shape) {
  const ObservedRule rule = rule_of(params);
  Scoring scoring = window_scoring(shape, rule.rows, params.word("pool"));
  const Sets sets = sets_of(params, shape);
  const double rows = real(rule.rows) * (rule.product ? sets.count : real(shape.query_heads));
  scoring.decodes = scoring.decode_rows = true;
  scoring.state = whole_bytes(kScoreBytes * rows / sets.count);
  scoring.slot = {.ops = 3 * rows};
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "observation_window",
      .summary = "keeps what the last queries attend among the tokens before them: MorphKV's and RPC's score",
      .paper =
          "Ghadia et al., MorphKV, ICML 2025, https://arxiv.org/abs/2503.00979; Song et al., Reasoning Path "
          "Compression, arXiv 2025, https://arxiv.org/abs/2505.13866",
      .details =
          "Score of a token before the window: the attention of the last `window` queries, each softmax over the tokens "
          "before the window alone. heads=product adds the logits of a set's query heads before that softmax, as MorphKV "
          "does; heads=mean takes the mean of the heads' softmaxes, as RPC does. rows=mean or max over the queries, then "
          "pooled along what is held. While an answer is written (decode) the window counts the arriving token, and the "
          "queries are those of its other tokens. morph_kv is MorphKV, rpc is RPC, in rounds.",
      .departures =
          {{"MorphKV's code: stores logits per query head, and cuts keys per KV head by a mask that may disagree",
            "one set per KV head"},
           {"MorphKV's code: its window does not count the arriving token", "it does: window=31 is their 30"},
           {"RPC's code: the newest query counts twice and the oldest of the window not",
            "each counts once"}},
      .params = {window_param(32, 1), pool_param("pool", "none", "smoothing along positions"),
                 choice_param(
                     "heads", "mean", {"mean", "product"},
                     "mean of the query heads' attention, or of the product of it, which adds logits"),
                 choice_param("rows", "mean", {"mean", "max"}, "of the last queries"), unit_param("lane"),
                 sinks_param(0), granularity_param(), drop_param(), decode_param("false"), tie_param()},
      .needs = {.prompt_rows = RowNeed::window, .decode_rows = true},
      .needs_of =
          [](const Params& params) {
            return Needs{.prompt_rows = RowNeed::window, .decode_rows = params.flag("decode")};
          },
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<ObservationWindow>}};
}

}  // namespace kvsim::policy::observation_window
