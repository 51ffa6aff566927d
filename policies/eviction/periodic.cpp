// Ranks what is held again and again while an answer is written.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "policies/api/over_base.hpp"
#include "policies/api/renewing.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/logits.hpp"
#include "sim/base/cap_logits.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::periodic {
namespace {

/// Rows of attention are computed anew from keys and queries.
Needs needs_of(const Params& params) {
  Needs out = params.part("base").needs();
  out.decode_rows = false;
  if (out.prompt_rows != RowNeed::none || out.queries) out.keys = out.queries = true;
  return out;
}

struct Settings {
  explicit Settings(const Params& params)
      : base(params.part("base")),
        interval(params.count("interval")),
        keeps_prompt(params.word("prompt") == "kept"),
        carry(params.word("carry")),
        fading(params.real("fading")),
        rank(KeepRule::of(base.params)) {}

  /// Returns how many tokens stay in a full cache: with the arriving one what the base needs at least.
  std::size_t target(std::size_t budget) const {
    return std::max(base.floor() - 1, budget - std::min(budget, interval));
  }

  /// What a score becomes that comes again, for a token that has kept `before` from its last cut.
  double carried(double before, double score) const {
    if (std::isnan(before)) return score;
    if (carry == "max") return std::max(fading * before, score);
    return fading * before + (carry == "mean" ? 1 - fading : 1) * score;
  }

  Part base;
  std::size_t interval;
  bool keeps_prompt;
  std::string carry;
  double fading;
  KeepRule rank;
};

/// What the tokens of a cache are made of, token after token: keys and values of every lane, and queries.
class HeldRows {
 public:
  HeldRows(const CacheUnit& unit, const Needs& needs)
      : lanes_(static_cast<std::size_t>(unit.n_lanes)),
        heads_(static_cast<std::size_t>(unit.n_query_heads())),
        key_dim_(needs.keys ? static_cast<std::size_t>(unit.head_dim) : 0),
        value_dim_(needs.values ? static_cast<std::size_t>(unit.value_dim) : 0),
        query_dim_(needs.queries ? static_cast<std::size_t>(unit.head_dim) : 0),
        width_(lanes_ * (key_dim_ + value_dim_) + heads_ * query_dim_) {}

  std::size_t size() const { return width_ == 0 ? 0 : rows_.size() / width_; }
  void resize(std::size_t slots) { rows_.resize(slots * width_); }
  void close(std::span<const std::size_t> victims) {
    if (width_ > 0) close_up(rows_, victims, width_);
  }

  /// Writes the rows of a slot, of which only those are asked for that are needed: key_of(lane),
  /// value_of(lane), query_of(head).
  template <class Key, class Value, class Query>
  void set(std::size_t slot, Key key_of, Value value_of, Query query_of) {
    const auto copy = [](auto from, std::span<float> to) {
      if (!to.empty()) std::copy_n(from.begin(), to.size(), to.begin());
    };
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      if (key_dim_ > 0) copy(key_of(lane), key(slot, lane));
      if (value_dim_ > 0) copy(value_of(lane), value(slot, lane));
    }
    for (std::size_t head = 0; head < heads_ && query_dim_ > 0; ++head)
      copy(query_of(head), query(slot, head));
  }
  /// Returns the same of other slots, in their order.
  HeldRows at(std::span<const std::size_t> slots) const {
    HeldRows out = *this;
    out.resize(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i)
      std::copy_n(rows_.begin() + static_cast<std::ptrdiff_t>(slots[i] * width_), width_,
                  out.rows_.begin() + static_cast<std::ptrdiff_t>(i * width_));
    return out;
  }
  // [tokens, dim]
  MatrixView keys(std::size_t lane) const { return view(lane * key_dim_, key_dim_); }
  MatrixView values(std::size_t lane) const {
    return view(lanes_ * key_dim_ + lane * value_dim_, value_dim_);
  }
  MatrixView queries(std::size_t head) const {
    return view(lanes_ * (key_dim_ + value_dim_) + head * query_dim_, query_dim_);
  }

 private:
  std::span<float> key(std::size_t slot, std::size_t lane) {
    return {rows_.data() + slot * width_ + lane * key_dim_, key_dim_};
  }
  std::span<float> value(std::size_t slot, std::size_t lane) {
    return {rows_.data() + slot * width_ + lanes_ * key_dim_ + lane * value_dim_, value_dim_};
  }
  std::span<float> query(std::size_t slot, std::size_t head) {
    return {rows_.data() + slot * width_ + lanes_ * (key_dim_ + value_dim_) + head * query_dim_, query_dim_};
  }
  MatrixView view(std::size_t first, std::size_t dim) const {
    return {rows_.data() + first, size(), dim, width_};
  }

  std::size_t lanes_, heads_, key_dim_, value_dim_, query_dim_, width_;
  std::vector<float> rows_;
};

/// What attention makes of products of queries and keys, as Prompt says.
struct LogitRule {
  double scale = 1, cap = 0;
  std::vector<float> sinks{};  ///< of the unit's query heads
};

/// What a cache holds, as if it were a prompt.
class HeldPrompt final : public Prompt {
 public:
  HeldPrompt(const HeldRows& rows, std::size_t length, const LogitRule& rule)
      : rows_(rows), length_(length), rule_(rule) {}
  std::size_t length() const override { return length_; }
  MatrixView keys(int lane) const override { return rows_.keys(static_cast<std::size_t>(lane)); }
  MatrixView values(int lane) const override { return rows_.values(static_cast<std::size_t>(lane)); }
  MatrixView queries(int head) const override { return rows_.queries(static_cast<std::size_t>(head)); }
  double scale() const override { return rule_.scale; }
  double cap() const override { return rule_.cap; }
  float sink(int head) const override { return rule_.sinks[static_cast<std::size_t>(head)]; }

 private:
  const HeldRows& rows_;
  std::size_t length_;
  const LogitRule& rule_;
};

/// Shows `observer` the last rows of attention among tokens at ascending `positions`.
void show_rows(Eviction& observer, const CacheUnit& unit, const HeldRows& held,
               std::span<const Position> positions, const LogitRule& rule) {
  const std::size_t n = positions.size(), rows = std::min(observer.prompt_rows(), n);
  std::vector<float> p(rows * n);
  std::vector<double> logits(n);
  for (int head = 0; head < unit.n_query_heads() && rows > 0; ++head) {
    const MatrixView queries = held.queries(static_cast<std::size_t>(head)),
                     keys = held.keys(static_cast<std::size_t>(head / unit.group));
    for (std::size_t i = n - rows; i < n; ++i) {
      // Positions ascend, so what the row sees are the last ones.
      std::size_t first = 0;
      while (!unit.sees(static_cast<std::size_t>(positions[i]), static_cast<std::size_t>(positions[first])))
        ++first;
      const std::span<double> seen = std::span(logits).subspan(first, i + 1 - first);
      for (std::size_t j = first; j <= i; ++j)
        seen[j - first] = capped(rule.scale * product_of(queries.row(i), keys.row(j)), rule.cap);
      softmax(seen, static_cast<double>(rule.sinks[static_cast<std::size_t>(head)]));
      float* const row = p.data() + (i - (n - rows)) * n;
      std::fill_n(row, n, 0.0F);
      for (std::size_t j = first; j <= i; ++j) row[j] = static_cast<float>(seen[j - first]);
    }
    observer.observe({head, n - rows, n, {p.data(), rows, n, n}});
  }
}

/// What all caches of a unit share.
struct Shared {
  Settings set;
  CacheUnit unit;
  LogitRule rule{};
  std::size_t prompt = 0;  ///< tokens of the text before the first generated one

  /// Scores as shares of the largest, for tokens that a later cut may rank again: not for the `window`
  /// newest.
  void remember(std::vector<double>& scores, std::size_t window) const {
    const double most = *std::max_element(scores.begin(), scores.end());
    for (double& x : scores) x = most > 0 ? x / most : 0;
    std::fill(scores.end() - static_cast<std::ptrdiff_t>(std::min(window, scores.size())), scores.end(),
              std::numeric_limits<double>::quiet_NaN());
  }

  /// Returns the indices of what stays, of tokens at ascending positions. `round`: of random draws.
  /// `carried`: what each token has kept from its last cut, which becomes what it keeps from this one.
  std::vector<Position> staying(const HeldRows& held, std::span<const Position> positions, std::size_t target,
                                Position round, std::vector<double>& carried) const {
    CacheUnit now = unit;
    now.seed = combine({unit.seed, key_of("periodic"), static_cast<std::uint64_t>(round)});
    const std::unique_ptr<Eviction> base = set.base.make_eviction(now);
    show_rows(*base, unit, held, positions, rule);
    base->finish_prompt(HeldPrompt(held, positions.size(), rule));
    std::vector<double> scores(base->scores().begin(), base->scores().end());
    if (set.carry != "none") {
      remember(scores, 0);
      for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = set.carried(carried[i], scores[i]);
      carried = scores;
      const std::size_t window = std::min(base->protection(target, positions.size()).window, carried.size());
      std::fill(carried.end() - static_cast<std::ptrdiff_t>(window), carried.end(),
                std::numeric_limits<double>::quiet_NaN());
    }
    if (set.keeps_prompt) {
      const auto [least, most] = std::minmax_element(scores.begin(), scores.end());
      const double above = *most - *least + 1;
      for (std::size_t i = 0; i < scores.size(); ++i)
        if (positions[i] < static_cast<Position>(prompt)) scores[i] += above;
    }
    // The first tokens of the text may have left the layer's window or chunk.
    const auto first = unit.span > 0 || unit.chunk > 0 ? static_cast<std::size_t>(positions.front()) : 0;
    const BlockOrder order(scores, set.rank.granularity, set.rank.tie, first);
    Protection protection = base->protection(target, positions.size());
    if (target < set.base.floor() && protection.window > 0)
      --protection.window;  // the arriving token is the newest of the window
    std::vector<char> stays = order.protected_blocks(protection);
    base->reserve(target, stays);
    return order.best(target, std::move(stays));
  }
};

class PeriodicDecoder final : public Decoder, public Renewing {
 public:
  /// `held`, `carried`: of the slots kept from the prompt.
  PeriodicDecoder(std::shared_ptr<const Shared> shared, HeldRows held, std::vector<double> carried)
      : shared_(std::move(shared)), held_(std::move(held)), carried_(std::move(carried)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (!arrival.full) return;
    const std::vector<std::size_t> by_position = least_first(arrival.slots);
    std::vector<Position> positions;
    for (const std::size_t slot : by_position) positions.push_back(arrival.slots[slot]);
    std::vector<double> carried;
    for (const std::size_t slot : by_position) carried.push_back(carried_[slot]);
    std::vector<char> stays(by_position.size());
    for (const Position index :
         shared_->staying(held_.at(by_position), positions, shared_->set.target(by_position.size()),
                          arrival.position, carried))
      stays[by_position[static_cast<std::size_t>(index)]] = 1;
    for (std::size_t i = 0; i < by_position.size(); ++i) carried_[by_position[i]] = carried[i];
    for (std::size_t slot = 0; slot < stays.size(); ++slot)
      if (!stays[slot]) victims.push_back(slot);
    held_.close(victims);
    close_up(carried_, victims, 1);
  }

  void observe(const Step& step) override {
    carried_.resize(step.slots.size());
    carried_[step.own_slot] = std::numeric_limits<double>::quiet_NaN();
    take(step);
  }
  void renew(const Step& step) override { take(step); }

 private:
  void take(const Step& step) {
    held_.resize(step.slots.size());
    held_.set(
        step.own_slot, [&](std::size_t lane) { return step.keys.row(lane); },
        [&](std::size_t lane) { return step.values.row(lane); },
        [&](std::size_t head) { return step.queries.row(head); });
  }

  std::shared_ptr<const Shared> shared_;
  HeldRows held_;
  std::vector<double> carried_;  ///< per slot: what it has kept from its last cut; NaN: nothing
};

class Periodic final : public OverBase<Eviction> {
 public:
  Periodic(const Params& params, const CacheUnit& unit)
      : OverBase(params.part("base").make_eviction(unit)),
        shared_(std::make_shared<Shared>(Shared{Settings(params), unit})),
        needs_(needs_of(params)),
        prompt_rows_(unit, needs_) {}

  void finish_prompt(const Prompt& prompt) override {
    base().finish_prompt(prompt);
    shared_->prompt = prompt.first() + prompt.length();
    if (needs_.queries) {
      shared_->rule = {prompt.scale(), prompt.cap(), {}};
      for (int head = 0; head < shared_->unit.n_query_heads(); ++head)
        shared_->rule.sinks.push_back(prompt.sink(head));
    }
    prompt_rows_.resize(prompt.length());
    for (std::size_t j = 0; j < prompt.length(); ++j)
      prompt_rows_.set(
          j, [&](std::size_t lane) { return prompt.keys(static_cast<int>(lane)).row(j); },
          [&](std::size_t lane) { return prompt.values(static_cast<int>(lane)).row(j); },
          [&](std::size_t head) { return prompt.queries(static_cast<int>(head)).row(j); });
  }

  Start start(std::size_t budget) const override {
    Start out;
    out.keep = base().start(budget).keep;
    const std::vector<std::size_t> slots(out.keep.begin(), out.keep.end());
    std::vector<double> carried(slots.size(), std::numeric_limits<double>::quiet_NaN());
    if (shared_->set.carry != "none" && slots.size() < base().scores().size()) {
      std::vector<double> scores(base().scores().begin(), base().scores().end());
      shared_->remember(scores, protection(budget, scores.size()).window);
      carried = at_positions(scores, out.keep);
    }
    out.decoder = std::make_unique<PeriodicDecoder>(shared_, prompt_rows_.at(slots), std::move(carried));
    return out;
  }
  Protection protection(std::size_t budget, std::size_t prompt) const override {
    return base().protection(budget, prompt);
  }

 private:
  std::shared_ptr<Shared> shared_;
  Needs needs_;
  HeldRows prompt_rows_;
};

void check(const Params& params) {
  const Part& base = params.part("base");
  const Needs needs = base.needs();
  const auto refuse = [&](const std::string& why) { usage_error(why, "base=" + base.text()); };
  if (needs.prompt_rows == RowNeed::all)
    refuse(
        "periodic ranks what is held anew, and what earlier rows attended is gone: its base may look at the last rows alone");
  if (needs.positions || needs.classes || needs.output_weights || base.params.has("file"))
    refuse(
        "periodic shows its base what is held as if it were a prompt: keys, values, queries and rows, and nothing else");
  if (!params.is("carry", "none") && needs.prompt_rows == RowNeed::none)
    refuse("periodic carries shares of attention from cut to cut, and its base reads no rows");
  if (KeepRule::of(base.params).stream) refuse("periodic ranks at once, its base takes tokens one by one");
}

/// A base's ranking of a full cache, every `interval` tokens, and the rows for it.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Settings set(params);
  Cost out = prompt_only(set.base.cost(shape));
  out.appends = false;
  CostShape held = shape;
  held.prompt = shape.budget;
  held.budget = std::min(set.target(shape.budget), shape.budget);
  const Cost again = set.base.cost(held);
  const double rows = real(std::min(again.prompt_rows, held.prompt));
  Work work = again.prompt + moved(shape, held.budget);
  if (rows > 0)
    work =
        work + Work{.flops = 2 * rows * real(held.prompt) * real(shape.query_heads * shape.head_dim),
                    .bytes = real(held.prompt) * real(shape.kv_heads * shape.head_dim * shape.element_bytes),
                    .launches = 1};
  out.step = 1 / real(shape.budget - held.budget + 1) * work;
  out.metadata.lane_slot = set.base.layer_unit() ? 0 : kPositionBytes;
  out.metadata.layer_slot = set.base.layer_unit() ? kPositionBytes : 0;
  out.metadata.layer = whole_bytes(rows * real(shape.query_heads * shape.head_dim * shape.element_bytes));
  out.scratch_bytes = std::max(out.scratch_bytes, again.scratch_bytes);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "periodic",
      .summary =
          "cuts prompt and answer whenever the cache is full, by a base policy's score of what is held",
      .paper =
          "the frame of R-KV (https://arxiv.org/abs/2505.24133), G-KV (https://arxiv.org/abs/2512.00504) and kvpress's "
          "DecodingPress",
      .details =
          "The prompt is cut to the budget B by the base. Generated tokens join until B are held; then the base ranks all of "
          "them as if they were a prompt, with its protection and the attention of the last tokens' queries among what is "
          "held, and B - interval stay (never less than the base needs). So B is the peak, and a cache rests at B - interval. "
          "Nothing is carried from one cut to the next, unless carry says so, as G-KV does: then scores are shares of the "
          "largest, and a token that was ranked before gets the larger of its new score and `fading` times the old one "
          "(max), fading * old + (1 - fading) * new (mean) or fading * old + new (sum). prompt=kept ranks tokens of the prompt above all others that are not "
          "protected. A random base draws anew at every cut.",
      .departures =
          {{"R-KV and G-KV: the budget is where a cache rests, and 128 more are held before a cut",
            "the budget is the peak: B + 128 here is their B"},
           {"R-KV's code: kept keys lie in order of score, and later cuts smooth over neighbours in that order",
            "in order of position"},
           {"kvpress: queries of the last tokens are all rotated to the current position",
            "each at its own"}},
      .params = {policy_param("base", "snapkv(window=8)", "what ranks the tokens that are held"),
                 count_param("interval", "128", {1, 1 << 20}, "tokens that leave a full cache at once",
                             "tokens"),
                 choice_param(
                     "prompt", "ranked", {"ranked", "kept"},
                     "whether the prompt's tokens compete with the answer's, or leave after all of these"),
                 choice_param("carry", "none", {"none", "max", "mean", "sum"},
                              "what of a token's score from one cut counts at the next"),
                 real_param("fading", "0.8", {0, 1}, "of that score", "share")},
      .needs = {.prompt_rows = RowNeed::window, .keys = true, .queries = true},
      .needs_of = needs_of,
      .layer_unit = [](const Params& params) { return params.part("base").layer_unit(); },
      .cost = cost_of,
      .check = check,
      .rule = EvictionRule{.floor = [](const Params& params) { return params.part("base").floor(); },
                           .make = made<Periodic>}};
}

}  // namespace kvsim::policy::periodic
