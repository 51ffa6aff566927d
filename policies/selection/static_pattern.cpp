// Positions alone: the first tokens, a window, and every so many-th token of the stretch before it.
#include <algorithm>

#include "policies/parts/index/reading.hpp"

namespace kvsim::policy::static_pattern {
namespace {

struct Rule {
  std::size_t sinks = 0, local = 0, strided = 0, stride = 2;

  bool reads(std::size_t key, std::size_t query) const {
    const std::size_t distance = query - key;
    if (key < sinks || distance < local) return true;
    return distance - local < strided && (distance - local) % stride == stride - 1;
  }
};

class PatternSelector final : public Selector {
 public:
  PatternSelector(const Rule& rule, const CacheUnit& /*unit*/) : rule_(rule) {}

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    std::vector<std::size_t>& first = reads.of(0);
    for (std::size_t slot = 0; slot < tokens.slots(); ++slot)
      if (rule_.reads(static_cast<std::size_t>(tokens.positions()[slot]),
                      static_cast<std::size_t>(asking.position)))
        first.push_back(slot);
    for (std::size_t head = 1; head < reads.heads(); ++head) reads.of(head) = first;
  }

 private:
  Rule rule_;
};

Rule rule_of(const Params& params) {
  return {params.count("sinks"), params.count("local"), params.count("strided"), params.count("stride")};
}

ReadCount reads_of(const Params& params, const CostShape& /*shape*/, std::size_t stored) {
  // As if nothing had been evicted, so that positions are those of the text.
  const Rule rule = rule_of(params);
  const std::size_t sinks = std::min(rule.sinks, stored), behind = stored - sinks,
                    local = std::min(rule.local, behind);
  const std::size_t strided = std::min(rule.strided, behind - local) / rule.stride;
  // The query's own token is always read.
  const bool own = sinks == stored || local > 0;
  return dense_reads(sinks + local + strided + (own || stored == 0 ? 0 : 1));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "static_pattern",
      .summary = "reads by position alone: the first tokens, a window, and a stride before it",
      .paper =
          "Jiang, Li, Zhang, Wu, Luo, Ahn, Han, Abdi, Li, Lin, Yang, Qiu, MInference 1.0: Accelerating "
          "Pre-filling for Long-Context LLMs via Dynamic Sparse Attention, NeurIPS 2024, "
          "https://arxiv.org/abs/2407.02490",
      .details =
          "The baselines of MInference's code that need no index. A query reads the first `sinks` positions, "
          "the `local` newest, its own included, and of the `strided` positions before those every "
          "`stride`-th.",
      .departures = {{"MInference's code: patterns of the prompt's rows; generated tokens read everything",
                      "rows behind the cut read so, generated ones too: with --cut 1 those of the prompt"},
                     {"MInference's code: of prompts shorter than the stride's stretch, the parity of the "
                      "prompt's length decides which tokens are skipped",
                      "the distance to the query decides"}},
      .params = {count_param("sinks", "128", {0, 1 << 24}, "first positions that are always read", "tokens"),
                 count_param("local", "512", {0, 1 << 24},
                             "newest positions that are read, the query's own included", "tokens"),
                 count_param("strided", "0", {0, 1 << 24}, "positions before those of which some are read",
                             "tokens"),
                 count_param("stride", "2", {1, 1 << 20}, "of which every so many-th is read", "tokens"),
                 dense_param(0)},
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<PatternSelector>(rule_of)}};
}

}  // namespace kvsim::policy::static_pattern
