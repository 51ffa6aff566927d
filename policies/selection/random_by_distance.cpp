// Blocks by chance, the less likely the farther they are: a reading of PrFlashAttention, and a control.
#include <cmath>
#include <vector>

#include "policies/parts/index/reading.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::random_by_distance {
namespace {

struct Rule {
  bool exponential = true, first = true;
  double range = 8;
  std::size_t block = 64;

  /// The probability of a block that lies so many blocks before the query's.
  double probability(std::size_t distance) const {
    const double far = static_cast<double>(distance) / range;
    return exponential ? std::exp(-far) : 1 / (1 + far);
  }
};

class DistanceSelector final : public UnitSelector {
 public:
  DistanceSelector(const Rule& rule, const CacheUnit& unit)
      : UnitSelector(unit),
        rule_(rule),
        key_(combine({unit.seed, key_of("random_by_distance"), static_cast<std::uint64_t>(unit.layer)})),
        first_lane_(static_cast<std::size_t>(unit.first_kv_head)) {}

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t own = static_cast<std::size_t>(asking.position) / rule_.block;
    for (std::size_t head = 0; head < reads.heads(); head += group_) {
      drawn_.resize(own + 1);
      for (std::size_t block = 0; block <= own; ++block)
        drawn_[block] = (block == 0 && rule_.first) ||
                        uniform01(combine({key_, first_lane_ + head / group_, own, block})) <
                            rule_.probability(own - block);
      for (std::size_t slot = 0; slot < tokens.slots(); ++slot)
        if (drawn_[static_cast<std::size_t>(tokens.positions()[slot]) / rule_.block] != 0)
          reads.of(head).push_back(slot);
      for (std::size_t other = 1; other < group_; ++other) reads.of(head + other) = reads.of(head);
    }
  }

 private:
  Rule rule_;
  std::uint64_t key_;
  std::size_t first_lane_;
  std::vector<char> drawn_;
};

Rule rule_of(const Params& params) {
  return {params.is("law", "exponential"), params.flag("first"), params.real("range"), params.count("block")};
}

ReadCount reads_of(const Params& params, const CostShape& /*shape*/, std::size_t stored) {
  if (stored == 0) return dense_reads(stored);
  // The expectation, as if nothing had been evicted.
  const Rule rule = rule_of(params);
  const std::size_t own = (stored - 1) / rule.block;
  double tokens = static_cast<double>(stored - own * rule.block);
  for (std::size_t block = 0; block < own; ++block)
    tokens +=
        static_cast<double>(rule.block) * (block == 0 && rule.first ? 1 : rule.probability(own - block));
  return {.head_tokens = tokens,
          .lane_tokens = tokens,
          .run_tokens = static_cast<double>(std::min(rule.block, stored))};
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "random_by_distance",
      .summary = "reads blocks by chance, the less likely the farther they are: a control",
      .paper =
          "Our reading of PrFlashAttention in: Nature of Mathematical Modeling, arXiv 2024, "
          "https://arxiv.org/abs/2410.18441",
      .details =
          "Positions are cut into blocks. A KV head reads a block that lies D blocks before that of the "
          "query with probability exp(-D / range), or 1 / (1 + D / range) with law=hyperbolic; the query's "
          "own block and the first are always read. Queries of one block read the same blocks.",
      .departures =
          {{"paper: a block takes part with a probability that depends on its distance; no "
            "probabilities, experiments or code",
            "laws, range, block size and the first block are ours: nothing here is a figure of it"}},
      .params = {choice_param("law", "exponential", {"exponential", "hyperbolic"},
                              "how the probability falls with the distance"),
                 real_param("range", "8", {0.001, 1e6},
                            "distance at which the probability is 1 / e, or a half", "blocks"),
                 count_param("block", "64", {1, 65536}, "tokens of a block", "tokens"),
                 flag_param("first", "true", "the first block is always read"), dense_param(0)},
      .randomised = true,
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<DistanceSelector>(rule_of)}};
}

}  // namespace kvsim::policy::random_by_distance
