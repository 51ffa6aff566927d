// Keeps keys of small norm.
#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"

namespace kvsim::policy::l2_norm {
namespace {

class L2NormDecoder final : public ScoredDecoder, public Renewing {
 public:
  using ScoredDecoder::ScoredDecoder;

  void observe(const Step& step) override { admit(step, -euclidean_norm(step.keys.row(0))); }
  void renew(const Step& step) override { observe(step); }
};

class L2Norm final : public ScoredEviction {
 public:
  L2Norm(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), decodes_(params.flag("decode")) {}

 private:
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    if (!decodes_) return nullptr;
    return std::make_unique<L2NormDecoder>(selection(budget), scores_of(slots));
  }

  std::vector<double> score(const Prompt& prompt) override {
    const MatrixView keys = prompt.keys(0);
    std::vector<double> out(prompt.length());
    for (std::size_t position = 0; position < out.size(); ++position)
      out[position] = -euclidean_norm(keys.row(position));
    return out;
  }

  bool decodes_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "l2_norm",
      .aliases = {"knorm"},
      .summary = "keeps the keys of smallest Euclidean norm",
      .paper =
          "Devoto, Zhao, Scardapane, Minervini, A Simple and Effective L2 Norm-Based Strategy for KV Cache "
          "Compression, EMNLP 2024, https://arxiv.org/abs/2406.11430",
      .details =
          "Score of a token: minus the norm of its key, per KV head; rotary embedding does not change it. "
          "Nothing is protected by default, as in the paper.",
      .departures = {{"authors' code: prunes a share of the cache whenever it has grown to a length",
                      "one token leaves when one arrives; l2_norm.prune"},
                     {"authors' experiments: exempt the first one or two layers", "no layer is exempt"}},
      .params = {sinks_param(0), window_param(0), granularity_param(), drop_param(), decode_param(),
                 phase_param(), tie_param()},
      .needs = {.keys = true},
      .cost =
          [](const Params& params, const CostShape& shape) {
            return scored_cost(params, shape,
                               {.state = 2,  // half precision suffices for a norm
                                .prompt = over_keys(shape, shape.prompt, 2),
                                .token = over_keys(shape, 1, 2)});
          },
      .rule = EvictionRule{.scored = true, .make = made<L2Norm>}};
}

}  // namespace kvsim::policy::l2_norm
