// Heavy hitters by accumulated attention, and a recent window.
#include "policies/api/column_sums.hpp"
#include "policies/api/score_policy.hpp"

namespace kvsim::policy {
namespace {

enum class Feedback { renorm, raw };

class H2oDecoder final : public ScoredDecoder {
 public:
  H2oDecoder(Feedback feedback, Protection protection, Tie tie, std::vector<double> scores)
      : ScoredDecoder(protection, tie, std::move(scores)), feedback_(feedback) {}

  void observe(const Step& step) override {
    const std::span<double> accumulated = admit(step, 0);
    const auto n_heads = static_cast<double>(step.attention.rows);
    for (std::size_t head = 0; head < step.attention.rows; ++head) {
      const double weight = feedback_ == Feedback::renorm ? renormalise(step, head) : 1.0;
      add_scaled(step.attention.row(head), weight / n_heads, accumulated);
    }
  }

 private:
  Feedback feedback_;
};

class H2o final : public ScoredEviction {
 public:
  H2o(const Params& params, const Unit& unit)
      : ScoredEviction(unit, {}, tie_of(params)),
        recent_(params.real("recent")),
        feedback_(params.word("feedback") == "renorm" ? Feedback::renorm : Feedback::raw),
        sums_(unit.n_query_heads(), kAllRows) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    return std::make_unique<H2oDecoder>(feedback_, protection(budget), tie(), scores_of(slots));
  }

 private:
  std::vector<double> score(const Prompt& /*prompt*/) override { return sums_.mean(); }

  Protection protection(std::size_t budget) const override {
    return {.sinks = 0, .window = static_cast<std::size_t>(recent_ * static_cast<double>(budget))};
  }

  double recent_;
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
          "highest scores, and a token once dropped never returns. This is the accumulation of the paper's "
          "text and of the authors' code; the pseudo-code as printed scores with the current row alone, "
          "which is tova(unit=lane). Departure: one decision when a token arrives, before its query attends.",
      .params =
          {{.name = "recent",
            .type = ParamType::real,
            .fallback = "0.5",
            .min = 0,
            .max = 1,
            .unit = "share of the budget",
            .help = "what goes to the most recent positions"},
           {.name = "feedback",
            .type = ParamType::choice,
            .fallback = "renorm",
            .choices = {"renorm", "raw"},
            .help =
                "what decoding adds: the compressed cache's own attention (as the authors' code sees it), "
                "or the full cache's (as cold-compress does)"},
           unit_param("lane"),
           tie_param()},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true},
      .layer_unit = unit_is_layer,
      .make_eviction = [](const Params& params, const Unit& unit) {
        return std::make_unique<H2o>(params, unit);
      }};
}

}  // namespace kvsim::policy
