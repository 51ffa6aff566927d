// Ranks by scores from a file: the output of a learned head, or any other source.
#include <memory>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/external_table.hpp"

namespace kvsim::policy::external_scores {
namespace {

using Table = std::shared_ptr<ExternalTable>;

class ExternalScoresDecoder final : public ScoredDecoder {
 public:
  ExternalScoresDecoder(Table table, const KeepRule& selection, std::vector<double> scores)
      : ScoredDecoder(selection, std::move(scores)), table_(std::move(table)) {}

  void observe(const Step& step) override { admit(step, (*table_)(static_cast<std::size_t>(step.position))); }

 private:
  Table table_;
};

class ExternalScores final : public ScoredEviction {
 public:
  ExternalScores(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), table_(std::make_shared<ExternalTable>(params, unit)) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const std::size_t end = prompt.first() + prompt.length();
    table_->read(end);
    decodes_ = table_->positions() > end;
    std::vector<double> out;
    for (std::size_t position = prompt.first(); position < end; ++position)
      out.push_back((*table_)(position));
    return out;
  }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    if (!decodes_) return nullptr;
    return std::make_unique<ExternalScoresDecoder>(table_, selection(budget), scores_of(slots));
  }

  Table table_;
  bool decodes_ = false;
};

/// Counts ranking by numbers that are already there; the cost of making them is unknown here. The file is
/// taken to cover only the prompt, as a head that scores prompts writes it.
Cost cost_of(const Params& params, const CostShape& shape) {
  return scored_cost(params, shape, prompt_scoring(0, {}));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "external_scores",
      .summary = "keeps the highest scores of a file: learned scores, or any others",
      .details =
          "A file holds one score per layer, KV head and position, fixed when the token is made, higher "
          "is kept: what a trained scoring head such as Locret's computes. If it covers the prompt "
          "alone, generated tokens are appended; if it covers them too, the lowest score leaves "
          "whenever one arrives. unit=layer ranks by the mean over the layer's KV heads.",
      .params = with(external_table_params("scores"), {sinks_param(0), window_param(0), unit_param("lane"),
                                                       granularity_param(), phase_param(), tie_param()}),
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<ExternalScores>}};
}

}  // namespace kvsim::policy::external_scores
