// Keeps the tokens that proxy queries attend, and a random sample of the rest.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "policies/parts/rows/gumbel.hpp"
#include "policies/parts/rows/highest.hpp"

namespace kvsim::policy::nacl {
namespace {

class Nacl final : public ScoredEviction {
 public:
  Nacl(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        random_(params.real("random")),
        key_(combine({unit.seed, key_of("nacl"), static_cast<std::uint64_t>(unit.layer),
                      static_cast<std::uint64_t>(unit.first_kv_head)})),
        rows_(LastRows::of_share(params.real("proxies"))),
        sums_(unit.n_query_heads(), rows_) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }
  double rows_in_score(std::size_t prompt) const override { return static_cast<double>(rows_.in(prompt)); }

 private:
  std::vector<double> score(const Prompt& prompt) override {
    first_ = prompt.first();
    return sums_.mean();
  }

  /// Marks the random part: drawn without replacement, with probability softmax(score) among the positions
  /// that are not top.
  void reserve(std::size_t budget, std::vector<char>& stays) const override {
    const auto held = static_cast<std::size_t>(std::count(stays.begin(), stays.end(), char{1}));
    const std::size_t room = std::min(budget, stays.size()) - held;
    const std::size_t n_random =
        std::min(static_cast<std::size_t>(random_ * static_cast<double>(budget)), room);
    std::vector<char> taken = stays;
    for (const std::size_t position : highest(scores(), taken, room - n_random)) taken[position] = 1;
    std::vector<double> perturbed(scores().begin(), scores().end());
    for (std::size_t j = 0; j < perturbed.size(); ++j) perturbed[j] += gumbel(combine({key_, first_ + j}));
    for (const std::size_t position : highest(perturbed, taken, n_random)) stays[position] = 1;
  }

  double random_;
  std::uint64_t key_;
  std::size_t first_ = 0;  ///< position of the first row
  LastRows rows_;
  ColumnSums sums_;
};

Cost cost_of(const Params& params, const CostShape& shape) {
  const std::size_t rows = LastRows::of_share(params.real("proxies")).in(shape.prompt);
  Work scores = prompt_sums(shape, rows);
  scores.ops += 4 * sets_of(params, shape).count * real(shape.prompt);  // Gumbel noise
  return scored_cost(params, shape, prompt_scoring(rows, scores));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "nacl",
      .summary =
          "keeps what the last prompt rows attend and a random sample of the rest; compresses the prompt "
          "once",
      .paper =
          "Chen, Wang, Shang, Cui, Zhang, Liu, Wang, Sun, Yu, Wu, NACL: A General and Effective KV Cache "
          "Eviction Framework for LLM at Inference Time, ACL 2024, "
          "https://aclanthology.org/2024.acl-long.428",
      .details =
          "Score: the sum of the attention from the last floor(proxies * P) prompt rows, at least one, "
          "averaged over the unit's query heads. Sinks and window stay, floor(random * B) tokens are drawn, "
          "the highest scores fill the rest. The draw is without replacement, with probability "
          "softmax(score), among the tokens that are not among the highest; it is a function of (seed, "
          "layer, head, position). Generated tokens are appended. random=0.35 is the authors' 0.07 of 0.20 "
          "of the prompt.",
      .departures =
          {{"authors' code: a proxy query sees later proxy tokens", "rows are causal"},
           {"authors' code: 256 sinks and int(0.01 P) - 256 recent tokens, which is negative for P < 25,600",
            "sinks=4 and no window, so that small budgets work; nacl.paddle has 256 sinks"},
           {"authors' code: indexes query heads by KV head", "mean over the heads that share a KV head"}},
      .params = {real_param("proxies", "0.01", {0, 1}, "last rows whose attention is the score",
                            "share of the prompt"),
                 real_param("random", "0.35", {0, 1}, "what goes to a random sample", "share of the budget"),
                 sinks_param(4), window_param(0), unit_param("lane"), ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::all},
      .randomised = true,
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<Nacl>}};
}

}  // namespace kvsim::policy::nacl
