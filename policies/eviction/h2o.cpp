// Heavy hitters by accumulated attention, and a recent window.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/column_sums.hpp"

namespace kvsim::policy {
namespace {

class H2oDecoder final : public ScoredDecoder {
 public:
  H2oDecoder(Feedback feedback, const Selection& selection, std::vector<double> scores)
      : ScoredDecoder(selection, std::move(scores)), feedback_(feedback) {}

  void observe(const Step& step) override { add_attention(step, feedback_, Group::mean, 1, admit(step, 0)); }

 private:
  Feedback feedback_;
};

class H2o final : public ScoredEviction {
 public:
  H2o(const Params& params, const Unit& unit)
      : ScoredEviction(unit, Selection::of(params)),
        recent_(params.real("recent")),
        slack_(params.count("granularity") - 1),
        feedback_(feedback_of(params)),
        sums_(unit.n_query_heads(), kAllRows) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }

 private:
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    return std::make_unique<H2oDecoder>(feedback_, selection(budget), scores_of(slots));
  }

  std::vector<double> score(const Prompt& /*prompt*/) override { return sums_.mean(); }

  Protection protection(std::size_t budget) const override {
    const auto share = static_cast<std::size_t>(recent_ * static_cast<double>(budget));
    return {.sinks = 0, .window = std::min(share, budget - slack_)};
  }

  double recent_;
  std::size_t slack_;  ///< a window may begin with the last position of a block
  Feedback feedback_;
  ColumnSums sums_;
};

}  // namespace

PolicySpec h2o_spec() {
  return {
      .name = "h2o",
      .kind = Kind::eviction,
      .summary = "keeps heavy hitters, the tokens with the most accumulated attention, and recent tokens",
      .paper =
          "Zhang, Sheng, Zhou, Chen, Zheng, Cai, Song, Tian, Re, Barrett, Wang, Chen, H2O: Heavy-Hitter "
          "Oracle for Efficient Generative Inference of Large Language Models, NeurIPS 2023, "
          "https://arxiv.org/abs/2306.14048",
      .details =
          "Score: attention received from every prompt row and every later query, averaged over the unit's "
          "query heads. The last floor(recent * B) positions stay, the rest of the budget goes to the "
          "highest scores, and a token once dropped never returns.",
      .departures = {{"paper: the printed pseudo-code scores with the current row alone",
                      "attention is accumulated, as text and code do; the other is tova(unit=lane)"},
                     {"authors' code: heavy and recent sizes fixed from the prompt's length",
                      "a share of the budget: recent"},
                     {"authors' code: per query head, no grouped queries",
                      "mean over the heads that share a KV head"},
                     {"authors' code: attends B + 1, then drops one", "drops before attending; phase=post"}},
      .params = {{.name = "recent",
                  .type = ParamType::real,
                  .fallback = "0.5",
                  .min = 0,
                  .max = 1,
                  .unit = "share of the budget",
                  .help = "what goes to the most recent positions"},
                 feedback_param(),
                 unit_param("lane"),
                 granularity_param(),
                 phase_param(),
                 prompt_param(),
                 tie_param()},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true},
      .scored = true,
      .layer_unit = unit_is_layer,
      .floor = selection_floor,
      .overshoot = selection_overshoot,
      .make_eviction = [](const Params& params, const Unit& unit) {
        return std::make_unique<H2o>(params, unit);
      }};
}

}  // namespace kvsim::policy
