// Ranks the prompt by the attention that the real continuation pays it.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/oracles/label_oracle.hpp"
#include "policies/parts/oracles/mass_ahead.hpp"
#include "policies/parts/oracles/optimal_retention.hpp"

namespace kvsim::policy::future_mean {
namespace {

class FutureMean final : public LabelOracle {
 public:
  explicit FutureMean(const Params& params) : LabelOracle(params) {}
  std::vector<double> losses() const override { return losses_; }

 private:
  std::vector<double> label(const Future& future, std::size_t horizon) override {
    const MassAhead mass(future.attention(), future.prompt(), horizon);
    if (horizon == kWholeFuture) losses_ = append_losses(mass);
    std::vector<double> out(mass.n_tokens(), 0.0);
    for (std::size_t j = 0; j < out.size(); ++j) {
      // The first step after token j; it is the same for all tokens of the prompt.
      const std::size_t first = j < mass.prompt() ? 0 : j - mass.first() + 1;
      if (first >= mass.n_steps()) continue;
      out[j] = mass.from_step(first)[j] / static_cast<double>(std::min(horizon, mass.n_steps() - first));
    }
    return out;
  }

  std::vector<double> losses_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "future_mean",
      .summary = "ranks the prompt once, by the mean attention of the real continuation",
      .details =
          "Label of a token: the attention it receives from later generated tokens, averaged over those and "
          "over the unit's query heads; at cut prompt the last prompt token, which is asked again, is one of "
          "them. With generated=append the prompt is cut once and everything generated stays: the best any "
          "method that only compresses the prompt can do for attention loss, lane by lane; "
          "future_mean+best_split the best over all splits of a total, among those that append. With "
          "generated=evict the lowest label leaves a full cache; a label counts the whole future from the "
          "token's arrival on, whatever of it has passed.",
      .params = {horizon_param(), generated_param("append"), unit_param("lane")},
      .rule = OracleRule{.loss_curve =
                             [](const Params& params) {
                               return label_oracle_appends(params) && horizon_of(params) == kWholeFuture;
                             },
                         .appends = label_oracle_appends,
                         .make = made<FutureMean>}};
}

}  // namespace kvsim::policy::future_mean
