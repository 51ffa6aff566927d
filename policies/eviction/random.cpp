// Keeps a random sample: the baseline for choosing without information.
#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::random {
namespace {

/// The random draws of one unit; a value depends only on its keys.
struct Draws {
  std::uint64_t key = 0;

  explicit Draws(const CacheUnit& unit)
      : key(combine({unit.seed, key_of("random"), static_cast<std::uint64_t>(unit.layer),
                     static_cast<std::uint64_t>(unit.first_kv_head)})) {}
  double operator()(Position position) const {
    return uniform01(combine({key, static_cast<std::uint64_t>(position)}));
  }
  double operator()(Position position, Position step) const {
    return uniform01(combine({key, static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(step)}));
  }
};

class RandomDecoder final : public ScoredDecoder {
 public:
  RandomDecoder(const Draws& draws, bool redraw, const KeepRule& selection, std::vector<double> scores)
      : ScoredDecoder(selection, std::move(scores)), draws_(draws), redraw_(redraw) {}

  void rescore(const Arrival& arrival) override {
    if (!redraw_) return;
    for (std::size_t slot = 0; slot < arrival.slots.size(); ++slot)
      scores()[slot] = draws_(arrival.slots[slot], arrival.position);
  }

  void observe(const Step& step) override { admit(step, draws_(step.position)); }

 private:
  Draws draws_;
  bool redraw_;
};

class Random final : public ScoredEviction {
 public:
  Random(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), draws_(unit), redraw_(params.flag("redraw")) {}

 private:
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    return std::make_unique<RandomDecoder>(draws_, redraw_, selection(budget), scores_of(slots));
  }

  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out(prompt.length());
    for (std::size_t row = 0; row < out.size(); ++row)
      out[row] = draws_(static_cast<Position>(prompt.first() + row));
    return out;
  }

  Draws draws_;
  bool redraw_;
};

/// A priority follows from seed and position: it is not stored, and drawing it again takes a few operations.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Sets sets = sets_of(params, shape);
  Cost out = scored_cost(params, shape, {.state = 0, .slot = {.ops = 10 * sets.count}});
  out.metadata = sets.per_slot(kPositionBytes);
  out.step_slot.bytes = sets.count * kPositionBytes;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {.name = "random",
          .summary = "keeps a uniform random sample",
          .details =
              "Every position draws one priority from (seed, layer, head, position) and the highest stay: "
              "at every step what is held, the newest token apart, is a uniform sample of the past without "
              "replacement, and larger budgets hold supersets. redraw=true draws again for every resident "
              "at every step: then old tokens thin out geometrically.",
          .departures = {{"cold-compress draws again at every step", "one draw per position; redraw=true"}},
          .params = {sinks_param(0), window_param(0),
                     flag_param("redraw", "false", "draw a new priority for every resident at every step"),
                     unit_param("lane"), granularity_param()},
          .randomised = true,
          .cost = cost_of,
          .rule = EvictionRule{.scored = true, .make = made<Random>}};
}

}  // namespace kvsim::policy::random
