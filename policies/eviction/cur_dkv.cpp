// Keeps tokens whose keys and values carry most of the length of those around them.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"

namespace kvsim::policy::cur_dkv {
namespace {

/// Multiplies each score by the row's squared length, as a share of its block's.
void times_shares(const MatrixView& rows, std::size_t block, std::span<double> scores) {
  std::vector<double> squares(rows.rows);
  for (std::size_t j = 0; j < rows.rows; ++j) squares[j] = squared_norm(rows.row(j));
  for (std::size_t first = 0; first < squares.size(); first += block) {
    const std::size_t end = std::min(first + block, squares.size());
    double sum = 0;
    for (std::size_t j = first; j < end; ++j) sum += squares[j];
    for (std::size_t j = first; j < end; ++j) scores[j] *= sum > 0 ? squares[j] / sum : 0;
  }
}

class CurDkv final : public ScoredEviction {
 public:
  CurDkv(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), block_(params.count("block")), of_(params.word("of")) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out(prompt.length(), 1.0);
    if (of_ != "values") times_shares(prompt.keys(0), block_, out);
    if (of_ != "keys") times_shares(prompt.values(0), block_, out);
    double sum = 0;
    for (const double x : out) sum += x;
    for (double& x : out) x = sum > 0 ? x / sum : 0;
    return out;
  }

  std::size_t block_;
  std::string of_;
};

Cost cost_of(const Params& params, const CostShape& shape) {
  Work scores{};
  if (!params.is("of", "values")) scores = scores + over_keys(shape, shape.prompt, 2);
  if (!params.is("of", "keys")) scores = scores + over_values(shape, shape.prompt, 2);
  return scored_cost(params, shape, prompt_scoring(0, scores));
}

}  // namespace

PolicySpec spec() {
  return {.name = "cur_dkv",
          .summary = "keeps tokens whose keys and values are long beside those around them",
          .paper =
              "Sengupta, Chaudhary, Chakraborty, Value-Guided KV Compression for LLMs via Approximated CUR "
              "Decomposition, NeurIPS 2025, https://arxiv.org/abs/2509.15038",
          .details =
              "The prompt is cut into blocks from its first token on. A key's share is its squared length "
              "divided by the sum over its block, a value's likewise; the score is their product, divided by "
              "the sum of all. The sinks stay. Generated tokens are appended.",
          .departures = {{"paper and code: keys and values may be projected to 20 random directions first",
                          "their own lengths, the code's default"},
                         {"kvpress: the score of a sink is 1, above all others but not protected",
                          "sinks are protected"}},
          .params = {count_param("block", "16", {1, 1 << 20}, "tokens that are compared", "tokens"),
                     choice_param("of", "both", {"both", "keys", "values"}, "whose lengths count"),
                     sinks_param(4), granularity_param(), ranked_tie_param()},
          .needs = {.keys = true, .values = true},
          .cost = cost_of,
          .rule = EvictionRule{.scored = true, .make = made<CurDkv>}};
}

}  // namespace kvsim::policy::cur_dkv
