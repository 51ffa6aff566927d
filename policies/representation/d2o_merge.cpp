// D2O's merging: what is evicted joins what is like it, if it is like it enough.
#include "policies/api/spec.hpp"
#include "policies/parts/merging/merging.hpp"

namespace kvsim::policy::d2o_merge {
namespace {

MergeRule rule(const Params& params) {
  MergeRule out;
  out.gate = params.is("gate", "moving") ? MergeRule::Gate::moving : MergeRule::Gate::fixed;
  out.rate = params.real("rate");
  out.tau = params.real("tau");
  out.weights = params.is("weights", "cosine") ? MergeRule::Weights::cosine : MergeRule::Weights::exponential;
  return out;
}

}  // namespace

PolicySpec spec() {
  return merging_spec(
      {.name = "d2o_merge",
       .summary = "what is evicted is merged into the most similar key that stays, if it is similar enough",
       .paper = "Wan, Wu, Zhang, Xin, Tao, Zhu, Wang, Luo, Xiong, Wang, Zhang, D2O: Dynamic Discriminative "
                "Operations for Efficient Long-Context Inference of Large Language Models, ICLR 2025, "
                "https://arxiv.org/abs/2406.13035",
       .details =
           "A token that leaves looks, in each lane, for the key with the largest cosine among those that "
           "stay. It is merged if that cosine, averaged over the lanes of its unit, reaches tau, and dropped "
           "otherwise. tau begins as the mean cosine of the prompt tokens that leave; at each later eviction "
           "it first goes the share `rate` of the way to the mean cosine of those that leave then. Keys and "
           "values become weighted means. Merged numbers are not rounded to the format of the trace.",
       .departures = {{"authors' code: the mean of what stays and of what joins it times its cosine, which "
                       "shortens the vector",
                       "the same; weights=exponential, with weights that add up to 1, does not"},
                      {"authors' code: one cosine per token, averaged over the heads of the layer",
                       "over the lanes of the unit: where lanes hold sets of their own, each decides alone"},
                      {"authors' code: the lost weight in the softmax is not repaired",
                       "the same; mass=count or log repairs it"}},
       .params = {choice_param("gate", "moving", {"moving", "fixed"},
                               "whether the least cosine of a merge follows what leaves or is `tau`"),
                  real_param("rate", "0.5", {0, 1},
                             "with gate=moving: weight of the newest cosines in the moving mean"),
                  real_param("tau", "0.6", {-1, 2},
                             "with gate=fixed: the least cosine; -1 merges everything, above 1 nothing"),
                  choice_param(
                      "weights", "cosine", {"cosine", "exponential"},
                      "of what joins: its cosine, beside 1, divided by the number of tokens; or exp(cosine), "
                      "beside e, divided by the sum"),
                  mass_param(), target_param()}},
      rule);
}

}  // namespace kvsim::policy::d2o_merge
