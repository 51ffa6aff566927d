// Evicts the token that the last query attends least.
#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"

namespace kvsim::policy::tova {
namespace {

class TovaDecoder final : public ScoredDecoder {
 public:
  using ScoredDecoder::ScoredDecoder;

  void observe(const Step& step) override {
    const std::span<double> row = admit(step, 0);
    std::fill(row.begin(), row.end(), 0.0);
    add_attention(step, Feedback::renorm, Group::mean, 1, row);
  }
};

class Tova final : public ScoredEviction {
 public:
  Tova(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), decodes_(params.flag("decode")), last_row_(unit.n_query_heads(), 1) {}

  std::size_t prompt_rows() const override { return 1; }
  void observe(const PromptRows& rows) override { last_row_.add(rows); }

 private:
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    if (!decodes_) return nullptr;
    return std::make_unique<TovaDecoder>(selection(budget), scores_of(slots));
  }

  std::vector<double> score(const Prompt& /*prompt*/) override { return last_row_.mean(); }

  bool decodes_;
  ColumnSums last_row_;
};

/// The last row is used and not kept, so there is no state.
Cost cost_of(const Params& params, const CostShape& shape) {
  return scored_cost(params, shape,
                     {.state = 0,
                      .prompt_rows = 1,
                      .decode_rows = true,
                      .prompt = prompt_sums(shape, 1),
                      .slot = {.ops = real(shape.query_heads)}});
}

}  // namespace

PolicySpec spec() {
  return {.name = "tova",
          .summary = "drops what the last query attended least, one set per layer",
          .paper =
              "Oren, Hassid, Yarden, Adi, Schwartz, Transformers are Multi-State RNNs, EMNLP 2024, "
              "https://arxiv.org/abs/2401.06104",
          .details =
              "Score: the last query's attention over what is resident, averaged over all query heads of "
              "the layer; the prompt is cut once, by its last row. Nothing is protected and the newest "
              "token competes like any other. unit=lane decides per KV head; window=1 keeps the newest "
              "token, as kvpress does (tova.kvpress).",
          .departures = {{"authors' code: attends B + 1, then drops one",
                          "drops before attending, so B here is their B + 1; phase=post"}},
          .params = {unit_param("layer"), sinks_param(0), window_param(0), granularity_param(),
                     decode_param(), phase_param(), prompt_param(), tie_param()},
          .needs = {.prompt_rows = RowNeed::window, .decode_rows = true},
          .cost = cost_of,
          .check = check_decode,
          .rule = EvictionRule{.scored = true, .make = made<Tova>}};
}

}  // namespace kvsim::policy::tova
