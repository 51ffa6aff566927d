// Ranks by the mean and the variance of the attention from the end of the prompt.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/pooling.hpp"

namespace kvsim::policy::cake {
namespace {

/// Mean and sample variance of the attention that rows pay to each key, updated row by row (Welford).
class Moments {
 public:
  void add(std::span<const float> row) {
    mean_.resize(row.size());
    squares_.resize(row.size());
    ++rows_;
    for (std::size_t j = 0; j < row.size(); ++j) {
      const double before = static_cast<double>(row[j]) - mean_[j];
      mean_[j] += before / static_cast<double>(rows_);
      squares_[j] += before * (static_cast<double>(row[j]) - mean_[j]);
    }
  }
  /// Returns mean + gamma * variance of every key; a single row has no variance.
  std::vector<double> combined(double gamma) const {
    std::vector<double> out = mean_;
    for (std::size_t j = 0; j < out.size() && rows_ > 1; ++j)
      out[j] += gamma * squares_[j] / static_cast<double>(rows_ - 1);
    return out;
  }

 private:
  std::size_t rows_ = 0;
  std::vector<double> mean_, squares_;
};

/// Ranks by the last query's attention, smoothed over the resident tokens before the window.
class CakeDecoder final : public ScoredDecoder {
 public:
  CakeDecoder(const Pooling& pooling, const KeepRule& selection, std::vector<double> scores)
      : ScoredDecoder(selection, std::move(scores)), pooling_(pooling) {
    by_age_.resize(this->scores().size());
    for (std::size_t slot = 0; slot < by_age_.size(); ++slot) by_age_[slot] = slot;
  }

  void observe(const Step& step) override {
    const std::span<double> scores = admit(step, 0);
    std::erase(by_age_, step.own_slot);
    by_age_.push_back(step.own_slot);
    std::fill(scores.begin(), scores.end(), 0.0);
    // Scores cover the tokens before the window as it is at the next eviction, when the arriving token may
    // belong to it.
    const std::size_t window = selection().protection.window - (selection().post ? 0 : 1);
    const std::size_t n_scored = by_age_.size() - std::min(window, by_age_.size());
    row_.resize(n_scored);
    for (std::size_t head = 0; head < step.attention.rows; ++head) {
      for (std::size_t i = 0; i < n_scored; ++i)
        row_[i] = renormalise(step, head) * static_cast<double>(step.attention(head, by_age_[i]));
      const std::vector<double> smooth = pooled(pooling_, row_);
      for (std::size_t i = 0; i < n_scored; ++i) scores[by_age_[i]] += smooth[i];
    }
  }

 private:
  Pooling pooling_;
  std::vector<std::size_t> by_age_;  ///< slots by the age of their tokens, oldest first
  std::vector<double> row_;
};

class Cake final : public ScoredEviction {
 public:
  Cake(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        window_(params.count("window")),
        gamma_(params.real("gamma")),
        decodes_(params.flag("decode")),
        pooling_(Pooling::parse(params.word("pool"))),
        heads_(static_cast<std::size_t>(unit.n_query_heads())) {}

  std::size_t prompt_rows() const override { return window_; }
  void observe(const PromptRows& rows) override {
    const std::size_t n_scored = rows.prompt_length - std::min(window_, rows.prompt_length);
    Moments& head = heads_[static_cast<std::size_t>(rows.query_head)];
    for (std::size_t i = 0; i < rows.p.rows; ++i)
      if (rows.first_query + i >= n_scored) head.add(rows.p.row(i).first(n_scored));
  }

 private:
  /// Puts the window above all others: its oldest token moves out of it before a later query could rank that
  /// token.
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out(prompt.length());
    const std::size_t n_scored = prompt.length() - std::min(window_, prompt.length());
    for (const Moments& head : heads_) {
      const std::vector<double> smooth = pooled(pooling_, head.combined(gamma_));
      for (std::size_t j = 0; j < n_scored; ++j) out[j] += smooth[j] / static_cast<double>(heads_.size());
    }
    const auto window = out.begin() + static_cast<std::ptrdiff_t>(n_scored);
    std::fill(window, out.end(), *std::max_element(out.begin(), out.end()) + 1);
    return out;
  }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    if (!decodes_) return nullptr;
    return std::make_unique<CakeDecoder>(pooling_, selection(budget), scores_of(slots));
  }

  std::size_t window_;
  double gamma_;
  bool decodes_;
  Pooling pooling_;
  std::vector<Moments> heads_;
};

/// Counts as SnapKV does, with a variance beside each mean; while decoding, the last row is smoothed and not
/// kept.
Cost cost_of(const Params& params, const CostShape& shape) {
  const std::size_t window = params.count("window"), kernel = Pooling::parse(params.word("pool")).kernel;
  Scoring scoring = window_scoring(shape, window, params.word("pool"));
  scoring.prompt = scoring.prompt + Work{.ops = 3 * seen(shape, window)};
  scoring.decodes = true;
  scoring.state = 0;
  scoring.decode_rows = true;
  scoring.passes = 2;
  scoring.slot.ops = real((kernel + 1) * shape.query_heads);
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "cake",
      .summary =
          "keeps what the last prompt rows attend much or unsteadily, then what the last query attends",
      .paper =
          "Qin, Cao, Lin, Hu, Fan, Cheng, Lin, Li, CAKE: Cascading and Adaptive KV Cache Eviction with Layer "
          "Preferences, ICLR 2025, https://arxiv.org/abs/2503.12491",
      .details =
          "Score of a position before the window: mean plus gamma times the sample variance of the attention "
          "from the last `window` rows, pooled along positions within each query head, averaged over the "
          "unit's query heads. While decoding: the last query's attention over what is held before the "
          "window, pooled along what is held, in order of position; before any generated token has attended, "
          "the prompt's score decides who leaves first. CAKE as published is cake+cake_layers.",
      .departures =
          {{"authors' code: attends B + 1, then drops one", "drops before attending; phase=post"},
           {"authors' code: after the prompt neighbours are those in the cache, which is in order of "
            "score",
            "neighbours in order of position"},
           {"authors' code: the window is kept on top of the layer's budget", "the budget holds the window"}},
      .params = {window_param(32, 1), real_param("gamma", "200", {0, 1e6}, "weight of the variance"),
                 pool_param(
                     "pool", "avg:5",
                     "smoothing along positions; nopad: zeros beyond the ends do not count in the average"),
                 unit_param("lane"), sinks_param(0), decode_param(), phase_param(), tie_param()},
      .needs = {.prompt_rows = RowNeed::window, .decode_rows = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<Cake>}};
}

}  // namespace kvsim::policy::cake
