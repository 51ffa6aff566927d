// Keeps values of large norm.
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"

namespace kvsim::policy::value_norm {
namespace {

double norm(std::span<const float> value) {
  double squares = 0;
  for (const float x : value) squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares);
}

struct ValueNormDecoder final : ScoredDecoder, Renewing {
  using ScoredDecoder::ScoredDecoder;
  void observe(const Step& step) override { admit(step, norm(step.values.row(0))); }
  void renew(const Step& step) override { observe(step); }  // its value has come anew
};

class ValueNorm final : public ScoredEviction {
 public:
  ValueNorm(const Params& params, const CacheUnit& unit) : ScoredEviction(params, unit) {}

 private:
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    return std::make_unique<ValueNormDecoder>(selection(budget), scores_of(slots));
  }

  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> scores;
    for (std::size_t j = 0; j < prompt.length(); ++j) scores.push_back(norm(prompt.values(0).row(j)));
    return scores;
  }
};

}  // namespace

PolicySpec spec() {
  return {.name = "value_norm",
          .summary = "keeps the values of largest Euclidean norm",
          .params = {sinks_param(4), window_param(0), tie_param()},
          .needs = {.values = true},
          .cost =
              [](const Params& params, const CostShape& shape) {
                return scored_cost(params, shape,
                                   {.prompt = over_values(shape, shape.prompt, 2),  // a square and a sum
                                    .token = over_values(shape, 1, 2)});
              },
          .rule = EvictionRule{.scored = true, .make = made<ValueNorm>}};
}

}  // namespace kvsim::policy::value_norm
