// Evicts the block whose frequency times cost of recomputation is lowest, with ageing.
#include "policies/api/spec.hpp"
#include "policies/parts/blocks/greedy_dual.hpp"

namespace kvsim::policy::gdsf {

PolicySpec spec() {
  return {
      .name = "gdsf",
      .summary = "evicts the block whose uses times seconds of recomputing it are least; values age",
      .paper =
          "Cherkasova, Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy, HP "
          "Laboratories HPL-98-69R1, 1998",
      .details =
          "Value = age + uses * seconds, age being the value of the last block evicted. Attention makes deep "
          "blocks dearer, so that among equally popular ones the first ones of prompts leave.",
      .departures =
          {{"the paper's text was not at hand",
            "the key is that of its authors' code in Squid, repl/heap; without seconds libCacheSim's "
            "GDSF hits as many single blocks, but for the order of equal ones"},
           {"paper: cost over size of a document",
            "blocks are all of one size; the cost is the modelled "
            "seconds of computing the block at its depth, 1 where no model is named"}},
      .rule = ReplacementRule{.make = [](const Params&, const BlockSpace& space) {
        return std::make_unique<GreedyDual>(space, true, true);
      }}};
}

}  // namespace kvsim::policy::gdsf
