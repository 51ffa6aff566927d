// The first principal components of each KV head, as a stand-in for MatryoshkaKV's trained ones.
#include "policies/parts/codes/subspace.hpp"

namespace kvsim::policy::matryoshka {
namespace {

SubspaceRule rule(const Params& params) {
  return {.block = 1,
          .key_share = params.share("keys"),
          .value_share = params.share("values"),
          .rotated = true,
          .centred = true};
}

}  // namespace

PolicySpec spec() {
  return subspace_spec(
      {.name = "matryoshka",
       .summary = "keys and values of each KV head in the first principal components of other runs",
       .paper =
           "Lin, Zeng, Xiao, Kou, Hou, Gao, Zhang, Deng, MatryoshkaKV: Adaptive KV Compression via Trainable "
           "Orthogonal Projection, ICLR 2025, https://arxiv.org/abs/2410.14731",
       .details = "A stand-in without training. The principal components of keys as they are rotated, and of "
                  "values, come from a calibration, around its mean, per KV head; the first of them are "
                  "kept, and a token is stored as its coordinates in 16 bits. The mean costs nothing: of "
                  "keys it moves all logits of a query alike, and the values' is added after attention. A "
                  "token's own query reads its code.",
       .departures = {{"paper: the components are trained, so that every number of leading ones works, from "
                       "those of PCA on",
                       "those of PCA alone, which the paper reports to degrade sharply where few are kept"},
                      {"paper: each head keeps a number of its own, by a greedy search",
                       "all heads keep the same share"},
                      {"paper: the whole matrices are tables", "`shared` counts the columns that are kept"}},
       .params = {share_param("keys", "0.4", "of the key components that are kept, rounded"),
                  share_param("values", "0.4", "of the value components that are kept, rounded")}},
      rule, {});
}

}  // namespace kvsim::policy::matryoshka
