// Ranks what is held again and again while an answer is written.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "policies/api/over_base.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/held_rows.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::periodic {
namespace {

Needs needs_of(const Params& params) {
  Needs first = params.part("first").needs();
  first.decode_rows = false;
  return merged(first, needs_of_held(params.part("base")));
}

struct Settings {
  explicit Settings(const Params& params)
      : base(params.part("base")),
        first(params.part("first")),
        interval(params.count("interval")),
        share(params.real("share")),
        prompt(params.word("prompt")),
        carry(params.word("carry")),
        fading(params.real("fading")),
        rank(KeepRule::of(base.params)) {}

  /// Returns how many tokens stay in a full cache: with the arriving one what the base needs at least.
  std::size_t target(std::size_t budget) const {
    return std::max(base.floor() - 1, budget - std::min(budget, share > 0 ? 1 : interval));
  }
  /// How many of the answer's tokens compete: all, or those before the window.
  std::size_t competing(std::size_t answer, std::size_t window) const {
    return answer - (prompt == "ranked" ? 0 : std::min(window, answer));
  }
  bool round_ends(std::size_t answer, std::size_t window) const {
    const std::size_t n = competing(answer, window);
    return share > 0 && n > 0 && n % interval == 0;
  }
  /// Returns how many tokens may stay then, behind a text of `text`, of which `pinned` are held.
  std::size_t share_of(std::size_t text, std::size_t answer, std::size_t pinned, std::size_t window) const {
    const auto part = [&](std::size_t of) {
      return static_cast<std::size_t>(share * static_cast<double>(of));
    };
    return prompt == "ranked" ? part(text + answer) : pinned + window + part(competing(answer, window));
  }

  /// Whether the prompt is cut by what cuts the answer.
  bool one_rule() const { return first.text() == base.text(); }

  /// What a score becomes that comes again, for a token that has kept `before` from its last cut.
  double carried(double before, double score) const {
    if (std::isnan(before)) return score;
    if (carry == "max") return std::max(fading * before, score);
    return fading * before + (carry == "mean" ? 1 - fading : 1) * score;
  }

  Part base, first;
  std::size_t interval;
  double share;
  std::string prompt, carry;
  double fading;
  KeepRule rank;
};

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

  std::size_t of_prompt(std::span<const Position> positions) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(positions, [&](Position at) { return at < static_cast<Position>(prompt); }));
  }

  /// Returns the indices of what stays, of tokens at ascending positions, as one at `next` arrives.
  /// `carried`: what each token has kept from its last cut, which becomes what it keeps from this one.
  std::vector<Position> staying(const HeldRows& held, std::span<const Position> positions, std::size_t target,
                                Position next, std::vector<double>& carried) const {
    const std::size_t pinned = set.prompt == "apart" ? of_prompt(positions) : 0;
    if (pinned == 0) return ranked(held, positions, target, next, carried);
    const std::size_t answer = positions.size() - pinned, least = set.base.floor() - 1,
                      room = std::max(target - std::min(target, pinned),
                                      least - std::min(least, set.rank.protection.sinks)),
                      stay = std::min(answer, room);
    std::vector<Position> out(std::min(pinned, target - std::min(target, stay)));
    std::iota(out.begin(), out.end(), Position{0});
    std::vector<std::size_t> behind(answer);
    std::iota(behind.begin(), behind.end(), pinned);
    std::vector<Position> of_answer(stay);
    std::iota(of_answer.begin(), of_answer.end(), Position{0});
    if (stay < answer) {
      std::vector<double> of_behind(carried.end() - static_cast<std::ptrdiff_t>(answer), carried.end());
      of_answer = ranked(held.at(behind), positions.subspan(pinned), stay, next, of_behind);
      std::ranges::copy(of_behind, carried.end() - static_cast<std::ptrdiff_t>(answer));
    }
    for (const Position index : of_answer) out.push_back(index + static_cast<Position>(pinned));
    return out;
  }

 private:
  /// The same by the base's score among all of them.
  std::vector<Position> ranked(const HeldRows& held, std::span<const Position> positions, std::size_t target,
                               Position next, std::vector<double>& carried) const {
    CacheUnit now = unit;
    now.seed = combine({unit.seed, key_of("periodic"), static_cast<std::uint64_t>(next)});
    // The first tokens of the text may have left the layer's window or chunk, or are not seen.
    const bool begins =
        unit.span == 0 && unit.chunk == 0 && positions.front() < static_cast<Position>(prompt);
    const auto first = begins ? 0 : static_cast<std::size_t>(positions.front());
    const std::unique_ptr<Eviction> base = policy::ranked(set.base, now, held, positions, rule, first);
    std::vector<double> scores(base->scores().begin(), base->scores().end());
    if (set.carry != "none") {
      remember(scores, 0);
      for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = set.carried(carried[i], scores[i]);
      carried = scores;
      const std::size_t window = std::min(base->protection(target, positions.size()).window, carried.size());
      std::fill(carried.end() - static_cast<std::ptrdiff_t>(window), carried.end(),
                std::numeric_limits<double>::quiet_NaN());
    }
    if (set.prompt == "kept") {
      const auto [least, most] = std::minmax_element(scores.begin(), scores.end());
      const double above = *most - *least + 1;
      for (std::size_t i = 0; i < scores.size(); ++i)
        if (positions[i] < static_cast<Position>(prompt)) scores[i] += above;
    }
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
  /// `held`, `carried`: of the slots kept from the prompt. `window`: the newest that the base protects.
  PeriodicDecoder(std::shared_ptr<const Shared> shared, HeldRows held, std::vector<double> carried,
                  std::size_t window)
      : shared_(std::move(shared)), held_(std::move(held)), carried_(std::move(carried)), window_(window) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    const std::size_t stay = rest(arrival);
    if (stay == arrival.slots.size()) return;
    const std::vector<std::size_t> by_position = least_first(arrival.slots);
    std::vector<Position> positions;
    for (const std::size_t slot : by_position) positions.push_back(arrival.slots[slot]);
    std::vector<double> carried;
    for (const std::size_t slot : by_position) carried.push_back(carried_[slot]);
    std::vector<char> stays(by_position.size());
    for (const Position index :
         shared_->staying(held_.at(by_position), positions, stay, arrival.position, carried))
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
  /// How many tokens stay beside the arriving one.
  std::size_t rest(const Arrival& arrival) const {
    const Settings& set = shared_->set;
    const std::size_t held = arrival.slots.size(), out = arrival.full ? set.target(held) : held,
                      answer = static_cast<std::size_t>(arrival.position) - shared_->prompt;
    if (!set.round_ends(answer, window_)) return out;
    const std::size_t share =
        set.share_of(shared_->prompt, answer, shared_->of_prompt(arrival.slots), window_);
    return std::min(out, std::max(share, set.base.floor() - 1));
  }
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
  std::size_t window_;
};

class Periodic final : public OverBase<Eviction> {
 public:
  Periodic(const Params& params, const CacheUnit& unit)
      : OverBase(params.part("first").make_eviction(unit)),
        shared_(std::make_shared<Shared>(Shared{Settings(params), unit})),
        needs_(needs_of_held(params.part("base"))),
        rows_(unit, needs_) {}

  void finish_prompt(const Prompt& prompt) override {
    base().finish_prompt(prompt);
    shared_->prompt = prompt.first() + prompt.length();
    shared_->rule = LogitRule::of(prompt, shared_->unit, needs_);
    rows_ = HeldRows(shared_->unit, needs_, prompt);
  }

  Start start(std::size_t budget) const override {
    const Settings& set = shared_->set;
    const std::size_t window = set.base.protection()(budget, shared_->prompt).window;
    Start out;
    out.keep = base().start(budget).keep;
    const std::vector<std::size_t> slots(out.keep.begin(), out.keep.end());
    std::vector<double> carried(slots.size(), std::numeric_limits<double>::quiet_NaN());
    if (set.carry != "none" && set.one_rule() && slots.size() < base().scores().size()) {
      std::vector<double> scores(base().scores().begin(), base().scores().end());
      shared_->remember(scores, window);
      carried = at_positions(scores, out.keep);
    }
    out.decoder = std::make_unique<PeriodicDecoder>(shared_, rows_.at(slots), std::move(carried), window);
    return out;
  }
  Protection protection(std::size_t budget, std::size_t prompt) const override {
    return base().protection(budget, prompt);
  }

 private:
  std::shared_ptr<Shared> shared_;
  Needs needs_;
  HeldRows rows_;
};

void check(const Params& params) {
  const Part &base = params.part("base"), &first = params.part("first");
  check_held("periodic", base);
  const auto refuse = [&](const std::string& why) { usage_error(why, "base=" + base.text()); };
  if (!params.is("carry", "none") && base.needs().prompt_rows == RowNeed::none)
    refuse("periodic carries shares of attention from cut to cut, and its base reads no rows");
  if (base.layer_unit() && !first.layer_unit())
    refuse("periodic has one set per layer here, and first=" + first.text() + " ranks single KV heads");
  refuse_streaming("periodic", first);
}

/// A base's ranking of a full cache, every `interval` tokens, and the rows for it.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Settings set(params);
  Cost out = prompt_only((set.base.layer_unit() ? set.first : per_lane(set.first)).cost(shape));
  out.appends = false;
  CostShape held = shape;
  held.prompt = shape.budget;
  held.budget = std::min(set.target(shape.budget), shape.budget);
  const Cost again = set.base.cost(held);
  const std::size_t rows = std::min(again.prompt_rows, held.prompt);
  const Work work = again.prompt + moved(shape, held.budget) + rows_anew(shape, held.prompt, rows);
  out.step = 1 / real(shape.budget - held.budget + 1) * work;
  out.metadata.lane_slot = set.base.layer_unit() ? 0 : kPositionBytes;
  out.metadata.layer_slot = set.base.layer_unit() ? kPositionBytes : 0;
  out.metadata.layer =
      whole_bytes(real(rows) * real(shape.query_heads * shape.head_dim * shape.element_bytes));
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
          "the frame of R-KV (https://arxiv.org/abs/2505.24133), G-KV (https://arxiv.org/abs/2512.00504), RPC "
          "(https://arxiv.org/abs/2505.13866) and kvpress's DecodingPress",
      .details =
          "The prompt is cut to the budget B by `first`, which is the base unless said. Generated tokens join until B are held; then the base ranks all of "
          "them as if they were a prompt, with its protection and the attention of the last tokens' queries among what is "
          "held, and B - interval stay (never less than the base needs). So B is the peak, and a cache rests at B - interval. "
          "Nothing is carried from one cut to the next, unless carry says so, as G-KV does: then scores are shares of the "
          "largest, and a token that was ranked before gets the larger of its new score and `fading` times the old one "
          "(max), fading * old + (1 - fading) * new (mean) or fading * old + new (sum). prompt=kept ranks tokens of the prompt above all others that are not "
          "protected; prompt=apart shows the base the answer alone, and the prompt leaves only for the tokens that the base "
          "protects. With a share a cache is also cut at the end of every round of interval generated tokens, full or not: to "
          "that share of all tokens so far (ranked), or to what is held of the prompt, the base's window and the share of the "
          "answer before it, as RPC does; in between a full cache loses one token at a time. A random base draws anew at every "
          "cut.",
      .departures =
          {{"R-KV and G-KV: the budget is where a cache rests, and 128 more are held before a cut",
            "the budget is the peak: B + 128 here is their B"},
           {"R-KV's code: kept keys lie in order of score, and later cuts smooth over neighbours in that order",
            "in order of position"},
           {"kvpress: queries of the last tokens are all rotated to the current position",
            "each at its own"}},
      .params =
          {policy_param("base", "snapkv(window=8)", "what ranks the tokens that are held"),
           policy_param("first", "base", "what cuts the prompt; base: the same"),
           count_param("interval", "128", {1, 1 << 20}, "tokens that leave a full cache at once", "tokens"),
           choice_param(
               "prompt", "ranked", {"ranked", "kept", "apart"},
               "whether the prompt's tokens compete with the answer's, leave after all of these, or are "
               "not seen by the base"),
           real_param("share", "0", {0, 1},
                      "of the tokens so far, to which every round cuts; 0: a full cache alone is cut",
                      "share"),
           choice_param("carry", "none", {"none", "max", "mean", "sum"},
                        "what of a token's score from one cut counts at the next"),
           real_param("fading", "0.8", {0, 1}, "of that score", "share")},
      .needs = {.prompt_rows = RowNeed::window, .keys = true, .queries = true},
      .needs_of = needs_of,
      .layer_unit = [](const Params& params) { return params.part("base").layer_unit(); },
      .cost = cost_of,
      .check = check,
      .rule = EvictionRule{.floor =
                               [](const Params& params) {
                                 return std::max(params.part("base").floor(), params.part("first").floor());
                               },
                           .make = made<Periodic>}};
}

}  // namespace kvsim::policy::periodic
