// KVMerger's merging: runs of similar keys become one.
#include "policies/api/spec.hpp"
#include "policies/parts/merging/merging.hpp"

namespace kvsim::policy::kvmerger_merge {
namespace {

MergeRule rule(const Params& params) {
  MergeRule out;
  out.decode = false;
  out.nearest = MergeRule::Nearest::run;
  out.run_above = params.real("epsilon");
  out.weights = MergeRule::Weights::gaussian;
  out.sigma = params.real("sigma");
  return out;
}

}  // namespace

PolicySpec spec() {
  return merging_spec(
      {.name = "kvmerger_merge",
       .summary = "what is cut from the prompt is merged, with its run of similar keys, into one that stays",
       .paper = "Wang, Jin, Yu, Zhang, Model Tells You Where to Merge: Adaptive KV Cache Merging for LLMs on "
                "Long-Context Tasks, arXiv 2024, https://arxiv.org/abs/2407.08454",
       .details =
           "Successive tokens of the prompt are a run as long as the keys of neighbours have a cosine above "
           "epsilon, in each lane. Once, when the prompt is cut, a token that leaves joins the nearest "
           "position of its run that stays, of two the earlier; a run of which nothing stays is dropped. "
           "Weights are Gaussian in the distance to the key that stays, and the value is multiplied by the "
           "number of tokens that have become one. What a later eviction drops is lost. Merged numbers are "
           "not rounded to the format of the trace.",
       .departures =
           {{"KVMerger: of each run the token with the most attention stays, and recent and heavy tokens "
             "beside them as they are",
             "only the merging is here; which tokens stay is the eviction's, and each may take others in"},
            {"KVMerger: no released code is known to us; runs, weights and the factor on values follow "
             "what others write about it",
             "sigma=5 and epsilon=0.75, as they report; mass=none or log instead of the factor"}},
       .params = {real_param("epsilon", "0.75", {-1, 1},
                             "neighbours of a run have a cosine above this; 1: nothing is merged"),
                  real_param("sigma", "5", {0.01, 1e6}, "of the Gaussian, in units of the keys"),
                  mass_param("count"), target_param()}},
      rule);
}

}  // namespace kvsim::policy::kvmerger_merge
