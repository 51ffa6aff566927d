// The prompt ranked by the attention that the real continuation pays it.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/label_oracle.hpp"
#include "policies/parts/mass_ahead.hpp"

namespace kvsim::policy {
namespace {

class FutureMean final : public LabelOracle {
 public:
  explicit FutureMean(const Params& params) : LabelOracle(params) {}

 private:
  std::vector<double> label(const Future& future, std::size_t horizon) const override {
    const MatrixView attention = future.attention();
    const std::size_t n_steps = attention.rows, prompt = attention.cols - n_steps;
    const MassAhead mass(attention, prompt, horizon);
    std::vector<double> out(attention.cols, 0.0);
    for (std::size_t j = 0; j < out.size(); ++j) {
      const std::size_t first = j < prompt ? 0 : j - prompt + 1;  // first step of another token's query
      if (first >= n_steps) continue;
      out[j] = mass.from_step(first)[j] / static_cast<double>(std::min(horizon, n_steps - first));
    }
    return out;
  }
};

}  // namespace

PolicySpec future_mean_spec() {
  return {
      .name = "future_mean",
      .kind = Kind::eviction,
      .summary = "ranks the prompt once, by the mean attention of the real continuation",
      .details =
          "Label of a token: the attention it receives from later generated tokens, averaged over those and "
          "over the unit's query heads. With generated=append the prompt is cut once and everything "
          "generated "
          "stays: the best any method that only compresses the prompt can do for attention loss. With "
          "generated=evict the lowest label leaves a full cache; a label counts the whole future from the "
          "token's arrival on, whatever of it has passed.",
      .params = {horizon_param(), generated_param("append"), unit_param("lane")},
      .layer_unit = unit_is_layer,
      .make_oracle = [](const Params& params, const Unit&) { return std::make_unique<FutureMean>(params); }};
}

}  // namespace kvsim::policy
