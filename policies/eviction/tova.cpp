// What the last query attended least leaves.
#include "policies/api/column_sums.hpp"
#include "policies/api/score_policy.hpp"

namespace kvsim::policy {
namespace {

class TovaDecoder final : public ScoredDecoder {
 public:
  using ScoredDecoder::ScoredDecoder;

  void observe(const Step& step) override {
    const std::span<double> row = admit(step, 0);
    std::fill(row.begin(), row.end(), 0.0);
    for (std::size_t head = 0; head < step.attention.rows; ++head)
      add_scaled(step.attention.row(head), renormalise(step, head), row);
  }
};

class Tova final : public ScoredEviction {
 public:
  Tova(const Params& params, const Unit& unit)
      : ScoredEviction(unit, Protection::of(params), tie_of(params)), last_row_(unit.n_query_heads(), 1) {}

  std::size_t prompt_rows() const override { return 1; }
  void observe(const PromptRows& rows) override { last_row_.add(rows); }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    return std::make_unique<TovaDecoder>(protection(budget), tie(), scores_of(slots));
  }

 private:
  std::vector<double> score(const Prompt& /*prompt*/) override { return last_row_.mean(); }

  ColumnSums last_row_;
};

}  // namespace

PolicySpec tova_spec() {
  return {.name = "tova",
          .kind = Kind::eviction,
          .summary = "drops what the last query attended least, one set per layer",
          .paper =
              "Oren, Hassid, Yarden, Adi, Schwartz, Transformers are Multi-State RNNs, EMNLP 2024, "
              "https://arxiv.org/abs/2401.06104",
          .details =
              "Score: the last query's attention over what is resident, averaged over all query heads of "
              "the layer; the prompt is cut once, by its last row. Nothing is protected and the newest "
              "token competes like any other. Departure: the token that leaves does so when the next one "
              "arrives, so a query attends B tokens where the authors' code attends B + 1 and drops one "
              "afterwards: B here is their B + 1, and the decisions are the same. unit=lane decides per KV "
              "head; window=1 keeps the newest prompt token as kvpress does.",
          .params = {unit_param("layer"), sinks_param(0), window_param(0), tie_param()},
          .needs = {.prompt_rows = RowNeed::window, .decode_rows = true},
          .layer_unit = unit_is_layer,
          .floor = protection_floor,
          .make_eviction = [](const Params& params, const Unit& unit) {
            return std::make_unique<Tova>(params, unit);
          }};
}

}  // namespace kvsim::policy
