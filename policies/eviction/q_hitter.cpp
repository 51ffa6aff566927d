// Keeps heavy hitters that are easy to quantise.
#include <algorithm>
#include <array>
#include <limits>

#include "policies/api/slots.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/accumulated_attention.hpp"
#include "policies/parts/rows/highest.hpp"

namespace kvsim::policy::q_hitter {
namespace {

/// What each token has received, and how far it is from its quantised self.
struct Tokens {
  std::vector<double> attention, key_error, value_error;

  void resize(std::size_t n) {
    for (auto* numbers : {&attention, &key_error, &value_error}) numbers->resize(n);
  }
};

/// Maps numbers to [0, 1]; to 0 where all are equal.
class MinMax {
 public:
  explicit MinMax(std::span<const double> numbers) {
    // Each lane has every eighth number, so that the processor compares all of them at once.
    std::array<double, 8> least, largest;
    least.fill(kInfinity);
    largest.fill(-kInfinity);
    std::size_t i = 0;
    for (; i + 8 <= numbers.size(); i += 8)
      for (std::size_t j = 0; j < 8; ++j) {
        least[j] = std::min(least[j], numbers[i + j]);
        largest[j] = std::max(largest[j], numbers[i + j]);
      }
    for (; i < numbers.size(); ++i) {
      least[0] = std::min(least[0], numbers[i]);
      largest[0] = std::max(largest[0], numbers[i]);
    }
    least_ = *std::min_element(least.begin(), least.end());
    const double most = *std::max_element(largest.begin(), largest.end());
    range_ = most > least_ ? most - least_ : kInfinity;
  }
  double operator()(double number) const { return (number - least_) / range_; }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double least_, range_;
};

struct Rule {
  double lambda = 0, reserved = 0;
  std::size_t bits = 0;
  Feedback feedback = Feedback::renorm;

  void score(const Tokens& tokens, std::span<double> out) const {
    const MinMax attention(tokens.attention), key_error(tokens.key_error), value_error(tokens.value_error);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double friendly = 1 - (key_error(tokens.key_error[i]) + value_error(tokens.value_error[i])) / 2;
      out[i] = lambda * attention(tokens.attention[i]) + (1 - lambda) * friendly;
    }
  }
  std::vector<double> scores(const Tokens& tokens) const {
    std::vector<double> out(tokens.attention.size());
    score(tokens, out);
    return out;
  }
  std::size_t n_reserved(std::size_t budget) const {
    return static_cast<std::size_t>(reserved * static_cast<double>(budget));
  }
};

class QHitterDecoder final : public SparingDecoder, public Renewing {
 public:
  QHitterDecoder(const Rule& rule, std::size_t n_reserved, const KeepRule& selection, Tokens tokens)
      : SparingDecoder(selection, rule.scores(tokens)),
        rule_(rule),
        n_reserved_(n_reserved),
        tokens_(std::move(tokens)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (arrival.full) evict_sparing(tokens_.attention, n_reserved_, arrival, victims);
  }

  void observe(const Step& step) override {
    const std::span<double> scores = admit(step, 0);
    tokens_.resize(scores.size());
    tokens_.attention[step.own_slot] = 0;
    note_errors(step);
    row_.assign(scores.size(), 0);
    add_attention(step, rule_.feedback, Group::mean, 1, row_);
    for (std::size_t slot = 0; slot < row_.size(); ++slot) tokens_.attention[slot] += row_[slot];
    rule_.score(tokens_, scores);
  }
  void renew(const Step& step) override {
    note_errors(step);
    rule_.score(tokens_, scores());
  }

  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    const std::vector<std::size_t> staying = staying_slots(victims, tokens_.attention.size());
    for (auto* numbers : {&tokens_.attention, &tokens_.key_error, &tokens_.value_error})
      keep_slots(*numbers, staying);
  }

 private:
  void note_errors(const Step& step) {
    tokens_.key_error[step.own_slot] = quantisation_error(step.keys.row(0), rule_.bits);
    tokens_.value_error[step.own_slot] = quantisation_error(step.values.row(0), rule_.bits);
  }

  Rule rule_;
  std::size_t n_reserved_;
  Tokens tokens_;  // per slot
  std::vector<double> row_;
};

class QHitter final : public ScoredEviction {
 public:
  QHitter(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit, params.real("recent")),
        rule_{params.real("lambda"), params.real("reserved"), params.count("bits"), feedback_of(params)},
        sums_(unit.n_query_heads(), kAllRows) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }
  std::size_t rows_beside_columns() const override { return 0; }
  void observe_columns(const PromptColumns& columns) override { sums_.take(columns.query_head, columns.sum); }
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    Tokens tokens{at_positions(tokens_.attention, slots), at_positions(tokens_.key_error, slots),
                  at_positions(tokens_.value_error, slots)};
    return std::make_unique<QHitterDecoder>(rule_, rule_.n_reserved(budget), selection(budget),
                                            std::move(tokens));
  }

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const MatrixView keys = prompt.keys(0), values = prompt.values(0);
    tokens_.attention = sums_.mean();
    for (std::size_t j = 0; j < prompt.length(); ++j) {
      tokens_.key_error.push_back(quantisation_error(keys.row(j), rule_.bits));
      tokens_.value_error.push_back(quantisation_error(values.row(j), rule_.bits));
    }
    return rule_.scores(tokens_);
  }

  void reserve(std::size_t budget, std::vector<char>& stays) const override {
    reserve_highest(tokens_.attention, rule_.n_reserved(budget), budget, stays);
  }

  Rule rule_;
  ColumnSums sums_;
  Tokens tokens_;  // per prompt position
};

/// Counts attention and two quantisation errors per slot, each scaled between its least and its largest.
Cost cost_of(const Params& params, const CostShape& shape) {
  const auto errors = [&](std::size_t tokens) {
    return over_keys(shape, tokens, 6) + over_values(shape, tokens, 6);
  };
  Scoring scoring = accumulating(params, shape, Accumulation{});
  scoring.state = 3 * kScoreBytes;
  scoring.prompt = scoring.prompt + errors(shape.prompt);
  scoring.token = scoring.token + errors(1);
  scoring.slot.ops += 12 * real(shape.kv_heads);
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "q_hitter",
      .summary = "keeps heavy hitters that lose little by quantisation, and recent tokens",
      .paper =
          "Zhang, Liu, Chen, Kailkhura, Chen, Wang, Q-Hitter: A Better Token Oracle for Efficient LLM "
          "Inference via Sparse-Quantized KV Cache, MLSys 2024, https://github.com/VITA-Group/Q-Hitter",
      .details =
          "Score: lambda * accumulated attention + (1 - lambda) * friendliness, friendliness being 1 minus "
          "the mean of two errors: the distance of the token's key, and of its value, to its `bits`-bit "
          "self. Attention and errors are scaled to [0, 1] between the least and the largest of what "
          "competes. The last floor(recent * B) positions stay, then the floor(reserved * B) with the most "
          "attention alone, the score ranks the rest. Shares are the code's 0.05, 0.07 and 0.08 of 0.20 of "
          "the prompt. Attention itself is that of exact keys and values: nothing is quantised here. "
          "lambda=1 is h2o(recent=0.25).",
      .departures =
          {{"authors' code: attention and errors are scaled over all heads of the layer",
            "over what competes for the KV head's budget"},
           {"authors' code: a generated token's errors are scaled over the heads of that token alone, once",
            "over what is resident, at every step"},
           {"authors' code: keys and values are replaced by their quantised selves",
            "attention of the recorded run"},
           {"authors' code: lambda 1 unless told, its Q-Hitter script 0.5", "lambda=0.5"},
           {"authors' code: attends B + 1, then drops one", "drops before attending; phase=post"}},
      .params = {real_param("lambda", "0.5", {0, 1},
                            "weight of attention; the rest is how well the token can be quantised"),
                 real_param("reserved", "0.35", {0, 1}, "what goes to the most attention alone",
                            "share of the budget"),
                 count_param("bits", "4", {1, 16}, "of the quantisation whose errors count", "bits"),
                 recent_param("0.25"), feedback_param(), phase_param(), prompt_param(), tie_param()},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true, .keys = true, .values = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<QHitter>}};
}

}  // namespace kvsim::policy::q_hitter
