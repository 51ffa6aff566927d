// LOOK-M's merging: what the prompt loses joins what is like it, once.
#include "policies/api/spec.hpp"
#include "policies/parts/merging/merging.hpp"

namespace kvsim::policy::lookm_merge {
namespace {

MergeRule rule(const Params& params) {
  MergeRule out;
  out.decode = false;
  out.weights = params.is("merge", "pivotal")    ? MergeRule::Weights::pivotal
                : params.is("merge", "averaged") ? MergeRule::Weights::equal
                                                 : MergeRule::Weights::cosine;
  if (params.is("merge", "weighted")) out.gate = MergeRule::Gate::mean;
  return out;
}

}  // namespace

PolicySpec spec() {
  return merging_spec(
      {.name = "lookm_merge",
       .summary = "what is cut from the prompt is merged into the most similar key that stays",
       .paper = "Wan, Wu, Liu, Huang, Zhu, Jin, Wang, Yuan, LOOK-M: Look-Once Optimization in KV Cache for "
                "Efficient Multimodal Long-Context Inference, Findings of EMNLP 2024, "
                "https://arxiv.org/abs/2406.18139",
       .details =
           "Once, when the prompt is cut: every token that leaves joins, in each lane, the key with the "
           "largest cosine among those that stay. pivotal: each is first averaged with the one it joins, "
           "then all of these with it; averaged: the plain mean; weighted: the mean with each times its "
           "cosine, of those tokens alone whose cosine is at least the mean. What a later eviction drops is "
           "lost. Merged numbers are not rounded to the format of the trace.",
       .departures = {{"paper and code: text stays before images",
                       "only the merging is here; which tokens stay is the eviction's"},
                      {"authors' code: the lost weight in the softmax is not repaired",
                       "the same; mass=count or log repairs it"}},
       .params = {choice_param("merge", "pivotal", {"pivotal", "averaged", "weighted"},
                               "how tokens that join a key become one with it"),
                  mass_param(), target_param()}},
      rule);
}

}  // namespace kvsim::policy::lookm_merge
