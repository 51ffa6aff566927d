// Keeps what the question attends, each of its rows by how many keys it sees.
#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/window_rows.hpp"

namespace kvsim::policy::finch {
namespace {

class Finch final : public ScoredEviction {
 public:
  Finch(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        normalise_(params.flag("normalise")),
        rows_(unit.n_query_heads(), params.count("window")) {}

  std::size_t prompt_rows() const override { return rows_.window(); }
  void observe(const PromptRows& rows) override { rows_.add(rows); }

 private:
  /// The window is protected and needs no score.
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out(prompt.length());
    const auto rows = static_cast<double>(rows_.n_heads() * rows_.count());
    for (std::size_t head = 0; head < rows_.n_heads(); ++head)
      for (std::size_t i = 0; i < rows_.count(); ++i) {
        const double weight = normalise_ ? static_cast<double>(rows_.older() + i) : 1;
        for (std::size_t j = 0; j < rows_.older(); ++j)
          out[j] += weight * static_cast<double>(rows_.row(head, i)[j]) / rows;
      }
    return out;
  }

  bool normalise_;
  WindowRows rows_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "finch",
      .summary = "keeps what the question attends, each of its rows by how many keys it sees",
      .paper =
          "Corallo, Papotti, FINCH: Prompt-guided Key-Value Cache Compression, TACL 2024, "
          "https://doi.org/10.1162/tacl_a_00716",
      .details =
          "As kvpress has it (FinchPress). Score of a position before the window: attention of the window's rows, "
          "each times the number of positions before it, mean over rows and query heads, without smoothing. The "
          "window is the question, so its length has to be said, and the prompt is cut behind it. FINCH gives kept "
          "keys new positions: kvsim evaluate --positions cache-once does so. Generated tokens are appended.",
      .departures = {{"paper: the context comes in chunks, each with the question behind it",
                      "at once; kvsim evaluate --prefill has chunks"},
                     {"kvpress: finds the question behind a delimiter", "window"}},
      .params = {window_param(32, 1),
                 flag_param("normalise", "true", "weighs rows by how many keys they see"), sinks_param(0),
                 granularity_param(), ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::window},
      .cost =
          [](const Params& params, const CostShape& shape) {
            return scored_cost(params, shape, window_scoring(shape, params.count("window"), "none"));
          },
      .rule = EvictionRule{.scored = true, .make = made<Finch>}};
}

}  // namespace kvsim::policy::finch
