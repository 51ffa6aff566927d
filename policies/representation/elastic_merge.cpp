// Elastic Cache's merging: what the prompt loses joins its neighbour.
#include "policies/api/spec.hpp"
#include "policies/parts/merging/merging.hpp"

namespace kvsim::policy::elastic_merge {
namespace {

MergeRule rule(const Params& params) {
  MergeRule out;
  out.decode = false;
  if (params.is("nearest", "position")) out.nearest = MergeRule::Nearest::position;
  return out;
}

}  // namespace

PolicySpec spec() {
  return merging_spec(
      {.name = "elastic_merge",
       .summary = "what is cut from the prompt is averaged with the nearest position that stays",
       .paper = "Liu, Liu, Wang, Dong, Chen, Rao, Krishna, Lu, Efficient Inference of Vision "
                "Instruction-Following "
                "Models with Elastic Cache, ECCV 2024, https://arxiv.org/abs/2407.18121",
       .details =
           "Once, when the prompt is cut: every token that leaves joins the nearest position that stays, of "
           "two the earlier, and keys and values become the plain mean of all that have met there. What a "
           "later eviction drops is lost. Merged numbers are not rounded to the format of the trace.",
       .departures =
           {{"paper: anchors are the best tokens by attention; while decoding, the token at a fixed place "
             "leaves",
             "only the merging is here; which tokens stay and leave is the eviction's"},
            {"authors' code: positions are taken from an order where ranks are meant, without an offset",
             "the rule as the paper states it"},
            {"authors' code: the lost weight in the softmax is not repaired",
             "the same; mass=count or log repairs it"}},
       .params = {choice_param("nearest", "position", {"position", "cosine"},
                               "nearest in the text, or, for comparison, by the cosine of the keys"),
                  mass_param(), target_param()}},
      rule);
}

}  // namespace kvsim::policy::elastic_merge
