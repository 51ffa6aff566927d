// Principal components of all KV heads of a layer together, with an exact window: a stand-in for CSKV.
#include "policies/parts/codes/subspace.hpp"

namespace kvsim::policy::cskv {
namespace {

SubspaceRule rule(const Params& params) {
  return {.block = 0,
          .key_share = params.share("keys"),
          .value_share = params.share("values"),
          .rotated = false,
          .window = params.count("window"),
          .code = coordinate_code(params, "cskv(" + params.text() + ")")};
}

}  // namespace

PolicySpec spec() {
  return subspace_spec(
      {.name = "cskv",
       .summary = "all KV heads of a layer in their first principal components, the open window exact",
       .paper =
           "Wang, Li, Ning, Yuan, Yan, Dai, Wang, CSKV: Training-Efficient Channel Shrinking for KV Cache in "
           "Long-Context Scenarios, NeurIPS ENLSP 2024, https://arxiv.org/abs/2409.10593",
       .details =
           "A stand-in without training. The keys before rotation and the values of all KV heads of a layer "
           "are vectors, stored as their coordinates, in 16 bits, along the first principal components of "
           "other runs, not centred. Of all linear maps to so few numbers and back these leave the least "
           "squared error on the runs they come from, which is the loss that CSKV's maps are tuned to. "
           "Tokens wait exactly, beside their coordinates, until there are `window` of them; from then on "
           "the coordinates are read. With `bits` they are codes then, with a scale and the code of 0: of "
           "keys one coordinate of the window's tokens, of values a token's share for each KV head.",
       .departures = {{"authors' code: keeps less of keys than of values, 0.25 and 0.75",
                       "the same defaults"},
                      {"paper: maps start from the weights and are tuned on the loss of keys and values",
                       "its optimum on the calibration runs, in numbers that are not rounded"},
                      {"paper: maps are tuned with the 4 bits of their coordinates in view",
                       "bits=4 codes the same coordinates as 16 bits hold"}},
       .params = {share_param("keys", "0.25", "of the keys' numbers that are stored, rounded"),
                  share_param("values", "0.75", "of the values' numbers that are stored, rounded"),
                  count_param("window", "32", {0, 1 << 20}, "that wait exactly; 0: none", "tokens"),
                  coordinate_bits_param()},
       .layer_unit = [](const Params&) { return true; }},
      rule, {});
}

}  // namespace kvsim::policy::cskv
