// Several KV heads side by side become one of their size, by principal components.
#include "policies/parts/codes/subspace.hpp"

namespace kvsim::policy::kv_heads {
namespace {

SubspaceRule rule(const Params& params) {
  const std::size_t heads = params.count("heads");
  const double share = 1 / static_cast<double>(heads);
  return {.block = heads, .key_share = share, .value_share = share, .rotated = params.is("rope", "after")};
}

}  // namespace

PolicySpec spec() {
  return subspace_spec(
      {.name = "kv_heads",
       .summary = "several KV heads become one: as many components of all as one has numbers",
       .paper = "Yu et al., Effectively Compress KV Heads for LLM, arXiv 2024, "
                "https://arxiv.org/abs/2406.07056",
       .details = "A stand-in without training. `heads` neighbouring KV heads are one vector; of its "
                  "principal components on other runs (SVD-a: of the activations, not centred) as many are "
                  "kept as one head has numbers, for keys and for values. A token is stored as its "
                  "coordinates in 16 bits, and its own query reads them.",
       .departures =
           {{"paper: the components are folded into the weights, which are then tuned (LoRA) where much is "
             "cut",
             "what is read back is the projection itself; nothing is tuned"},
            {"paper: without rotation keys are folded as they are projected; with it there are two ways",
             "rope=after projects rotated keys, and queries at each step; rope=before projects them before "
             "rotation and rotates what is read"}},
       .params = {count_param("heads", "2", {1, 1 << 10},
                              "that become one; it must divide the layer's KV heads"),
                  choice_param("rope", "after", {"after", "before"},
                               "whether keys are projected after or before rotation")},
       .layer_unit = [](const Params&) { return true; }},
      rule, {"heads", "rope"});
}

}  // namespace kvsim::policy::kv_heads
