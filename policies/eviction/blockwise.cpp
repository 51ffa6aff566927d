// Cuts the prompt as it comes, block after block.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/held_rows.hpp"

namespace kvsim::policy::blockwise {
namespace {

class Blockwise final : public Eviction {
 public:
  Blockwise(const Params& params, const CacheUnit& unit)
      : base_(params.part("base")),
        size_(params.count("size")),
        rank_(KeepRule::of(base_.params)),
        unit_(unit),
        needs_(needs_of_held(base_)),
        rows_(unit, needs_) {}

  void finish_prompt(const Prompt& prompt) override {
    rows_ = HeldRows(unit_, needs_, prompt);
    rule_ = LogitRule::of(prompt, unit_, needs_);
    positions_.clear();
    for (std::size_t row = 0; row < prompt.length(); ++row)
      positions_.push_back(static_cast<Position>(prompt.position(row)));
  }

  Start start(std::size_t budget) const override {
    std::vector<std::size_t> held(std::min(budget, positions_.size()));
    std::iota(held.begin(), held.end(), std::size_t{0});
    for (std::size_t next = held.size(); next < positions_.size();) {
      for (const std::size_t end = std::min(next + size_, positions_.size()); next < end; ++next)
        held.push_back(next);
      std::vector<Position> at;
      for (const std::size_t row : held) at.push_back(positions_[row]);
      const auto base = policy::ranked(base_, unit_, rows_.at(held), at, rule_);
      const auto first = unit_.span > 0 || unit_.chunk > 0 ? static_cast<std::size_t>(at.front()) : 0;
      const BlockOrder order(base->scores(), rank_.granularity, rank_.tie, first);
      std::vector<char> stays = order.protected_blocks(base->protection(budget, held.size()));
      base->reserve(budget, stays);
      std::vector<std::size_t> kept;
      for (const Position index : order.best(budget, std::move(stays)))
        kept.push_back(held[static_cast<std::size_t>(index)]);
      held = std::move(kept);
    }
    return {{held.begin(), held.end()}, nullptr};
  }

 private:
  Part base_;
  std::size_t size_;
  KeepRule rank_;
  CacheUnit unit_;
  Needs needs_;
  HeldRows rows_;
  LogitRule rule_{};
  std::vector<Position> positions_{};
};

/// The base's cost of a budget and a block, for every block.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Part& base = params.part("base");
  const std::size_t size = params.count("size"), behind = shape.prompt - std::min(shape.budget, shape.prompt);
  CostShape held = shape;
  held.prompt = std::min(shape.budget + size, shape.prompt);
  const Cost one = base.cost(held);
  Cost out = prompt_only(one);
  out.prompt_rows = 0;  // they are computed anew
  out.prompt = std::ceil(real(behind) / real(size)) *
               (one.prompt + rows_anew(shape, held.prompt, std::min(one.prompt_rows, held.prompt)));
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "blockwise",
      .summary = "cuts the prompt block after block, by a base policy's score of what is held: BlockPress",
      .paper =
          "KeyDiff's block processing (Park et al., arXiv 2025, https://arxiv.org/abs/2504.15364), as kvpress's BlockPress",
      .details =
          "The first B tokens are held. Then every `size` tokens join, the base ranks all as if they were a prompt, and B "
          "stay. All keys and queries are those of the whole prompt's run, as in kvpress. Generated tokens are appended. "
          "keydiff(prompt=stream) has blocks of one token.",
      .params = {policy_param("base", "keydiff.kvpress", "what ranks the tokens that are held"),
                 count_param("size", "128", {1, 1 << 20}, "tokens that join at once", "tokens")},
      .needs = {.keys = true},
      .needs_of = [](const Params& params) { return needs_anew(params.part("base")); },
      .layer_unit = [](const Params& params) { return params.part("base").layer_unit(); },
      .cost = cost_of,
      .check = [](const Params& params) { check_held("blockwise", params.part("base")); },
      .rule = EvictionRule{.floor = [](const Params& params) { return params.part("base").floor(); },
                           .make = made<Blockwise>}};
}

}  // namespace kvsim::policy::blockwise
