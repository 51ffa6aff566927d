// Evicts low mean attention, but spares tokens whose attention varies much.
#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "policies/parts/rows/highest.hpp"

namespace kvsim::policy::roco {
namespace {

/// Attention that each position received, over rows and the unit's query heads.
struct Moments {
  std::vector<double> sum, squares, rows;

  void resize(std::size_t n) {
    for (auto* numbers : {&sum, &squares, &rows}) numbers->resize(n);
  }
  double mean(std::size_t i) const { return sum[i] / rows[i]; }
  std::vector<double> means() const {
    std::vector<double> out(sum.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = mean(i);
    return out;
  }
  std::vector<double> deviations() const {
    std::vector<double> out(sum.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = std::sqrt(std::max(0.0, squares[i] / rows[i] - mean(i) * mean(i)));
    return out;
  }
};

class RocoDecoder final : public SparingDecoder {
 public:
  /// `spared`: how many of the tokens that vary most are spared from eviction.
  RocoDecoder(const CacheUnit& unit, Feedback feedback, std::size_t spared, const KeepRule& selection,
              Moments moments)
      : SparingDecoder(selection, moments.means()),
        unit_(unit),
        feedback_(feedback),
        spared_(spared),
        moments_(std::move(moments)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (arrival.full) evict_sparing(moments_.deviations(), spared_, arrival, victims);
  }

  void observe(const Step& step) override {
    const std::span<double> scores = admit(step, 0);
    moments_.resize(scores.size());
    for (auto* numbers : {&moments_.sum, &moments_.squares, &moments_.rows}) (*numbers)[step.own_slot] = 0;
    const auto heads = static_cast<double>(step.attention.rows);
    for (std::size_t head = 0; head < step.attention.rows; ++head) {
      const double factor = feedback_ == Feedback::renorm ? renormalise(step, head) : 1;
      const std::span<const float> row = step.attention.row(head);
      for (std::size_t slot = 0; slot < scores.size(); ++slot) {
        const double a = factor * static_cast<double>(row[slot]);
        moments_.sum[slot] += a / heads;
        moments_.squares[slot] += a * a / heads;
      }
    }
    const auto position = static_cast<std::size_t>(step.position);
    for (std::size_t slot = 0; slot < scores.size(); ++slot) {
      if (unit_.sees(position, static_cast<std::size_t>(step.slots[slot]))) moments_.rows[slot] += 1;
      scores[slot] = moments_.mean(slot);
    }
  }

  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    const std::vector<std::size_t> staying = staying_slots(victims, moments_.sum.size());
    for (auto* numbers : {&moments_.sum, &moments_.squares, &moments_.rows}) keep_slots(*numbers, staying);
  }

 private:
  CacheUnit unit_;
  Feedback feedback_;
  std::size_t spared_;
  Moments moments_;  // per slot
};

class Roco final : public ScoredEviction {
 public:
  Roco(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        spread_(params.real("spread")),
        feedback_(feedback_of(params)),
        sums_(unit.n_query_heads(), kAllRows),
        squares_(unit.n_query_heads(), kAllRows) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override {
    sums_.add(rows);
    squares_.fold(rows, [](double sum, double p, std::size_t) { return sum + p * p; });
  }
  std::size_t rows_beside_columns() const override { return 0; }
  void observe_columns(const PromptColumns& columns) override {
    sums_.take(columns.query_head, columns.sum);
    squares_.take(columns.query_head, columns.sum_squares);
  }
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    Moments moments{at_positions(moments_.sum, slots), at_positions(moments_.squares, slots),
                    at_positions(moments_.rows, slots)};
    return std::make_unique<RocoDecoder>(unit(), feedback_, spared(budget), selection(budget),
                                         std::move(moments));
  }

 private:
  std::size_t spared(std::size_t budget) const {
    const auto [sinks, window] = rule().protection;
    return static_cast<std::size_t>(spread_ * static_cast<double>(budget - std::min(budget, sinks + window)));
  }

  std::vector<double> score(const Prompt& prompt) override {
    moments_ = {sums_.mean(), squares_.mean(), std::vector<double>(prompt.length())};
    for (std::size_t j = 0; j < prompt.length(); ++j)
      moments_.rows[j] = static_cast<double>(unit().seen_by(j, kAllRows, prompt.length()));
    return moments_.means();
  }

  void reserve(std::size_t budget, std::vector<char>& stays) const override {
    reserve_highest(moments_.deviations(), spared(budget), budget, stays);
  }

  double spread_;
  Feedback feedback_;
  ColumnSums sums_, squares_;
  Moments moments_;  // per prompt position
};

/// Counts sum, sum of squares and number of rows; from them a deviation and a mean, with the largest
/// deviations set aside.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double sets = sets_of(params, shape).count;
  Scoring scoring;
  scoring.state = 3 * kScoreBytes;
  scoring.prompt_rows = kAllRows;
  scoring.decode_rows = true;
  scoring.prompt = {.ops = 3 * seen(shape, kAllRows), .launches = 1};
  scoring.passes = 3;
  scoring.slot = {.ops = 3 * real(shape.query_heads) + 6 * sets, .bytes = sets * real(scoring.state)};
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "roco",
      .summary = "drops what has the lowest mean attention among tokens whose attention varies little",
      .paper =
          "Ren, Zhu, On the Efficacy of Eviction Policy for Key-Value Constrained Generative Language Model "
          "Inference, arXiv 2024, https://arxiv.org/abs/2402.06262",
      .details =
          "Every position has the mean and the standard deviation of the attention it received over the rows "
          "that saw it and the unit's query heads. Sinks and window stay; of the others, those "
          "floor(spread * what sinks and window leave of B) that vary most stay too; the lowest mean among "
          "the rest leaves. spread=0 is h2o(recent=0,normalise=mean) with the same sinks and window.",
      .departures =
          {{"EasyKV: one share counts the last tokens and those that vary most together, 0.1 for prompts, "
            "0.3 while decoding",
            "spread counts beyond sinks and window"},
           {"EasyKV: attention is averaged over the group before it is squared",
            "squares are averaged over the group too: the deviation over rows and heads"},
           {"EasyKV: a prompt passes in strides, each dropping as many; decoding manages generated tokens "
            "alone",
            "the prompt is ranked when it ends, or streamed by single tokens with prompt=stream; both are "
            "managed while decoding"},
           {"EasyKV: the variance may be negative, the deviation then not a number", "at least 0"}},
      .params = {real_param("spread", "0.3", {0, 1},
                            "what goes to positions that vary most, of the budget beyond sinks and window",
                            "share of the budget"),
                 sinks_param(4), window_param(10), feedback_param(), unit_param("lane"), phase_param(),
                 prompt_param(), tie_param()},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<Roco>}};
}

}  // namespace kvsim::policy::roco
