// Ranks every chunk of the prompt by itself.
#include <algorithm>
#include <limits>
#include <numeric>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/held_rows.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::chunked {
namespace {

class Chunked final : public ScoredEviction {
 public:
  Chunked(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), base_(params.part("base")), size_(params.count("size")) {}

 private:
  /// Minus the share of its chunk that stays before a token does, so that a budget keeps as much of every
  /// chunk.
  std::vector<double> score(const Prompt& prompt) override {
    const Needs needs = needs_of_held(base_);
    const HeldRows all(unit(), needs, prompt);
    const LogitRule rule = LogitRule::of(prompt, unit(), needs);
    std::vector<double> out(prompt.length());
    for (std::size_t begin = 0; begin < out.size(); begin += size_) {
      std::vector<std::size_t> chunk(std::min(size_, out.size() - begin));
      std::iota(chunk.begin(), chunk.end(), begin);
      std::vector<Position> positions;
      for (const std::size_t row : chunk) positions.push_back(static_cast<Position>(prompt.position(row)));
      const auto base = policy::ranked(base_, unit(), all.at(chunk), positions, rule);
      const std::vector<std::size_t> order = best_first(*base, chunk.size());
      for (std::size_t i = 0; i < order.size(); ++i)
        out[begin + order[i]] = -(static_cast<double>(i) + 0.5) / static_cast<double>(order.size());
    }
    return out;
  }

  /// What the base protects, then what it ranks highest.
  std::vector<std::size_t> best_first(const Eviction& base, std::size_t n) const {
    const Protection safe = base.protection(n, n);
    std::vector<double> scores(base.scores().begin(), base.scores().end());
    for (std::size_t i = 0; i < n; ++i)
      if (i < safe.sinks || i + safe.window >= n) scores[i] = std::numeric_limits<double>::infinity();
    // Of equals the newer stays, or the older.
    const bool newest = rule().tie != Tie::newest;
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (newest) std::ranges::reverse(order);
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return scores[i]; });
    return order;
  }

  Part base_;
  std::size_t size_;
};

/// The base's cost for every chunk, and the rows that it reads of each.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Part& base = params.part("base");
  CostShape chunk = shape;
  chunk.prompt = std::min(params.count("size"), shape.prompt);
  chunk.budget =
      std::max<std::size_t>(1, shape.budget * chunk.prompt / std::max<std::size_t>(1, shape.prompt));
  const Cost one = base.cost(chunk);
  Cost out = prompt_only(one);
  out.prompt_rows = 0;  // they are computed anew
  out.prompt = real(shape.prompt) / real(std::max<std::size_t>(1, chunk.prompt)) *
               (one.prompt + rows_anew(shape, chunk.prompt, std::min(one.prompt_rows, chunk.prompt)));
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "chunked",
      .summary =
          "keeps as much of every chunk of the prompt, each ranked as if it were the whole: ChunkPress",
      .paper =
          "https://github.com/NVIDIA/kvpress, ChunkPress, after FINCH (https://doi.org/10.1162/tacl_a_00716)",
      .details =
          "The prompt is cut into chunks of `size` tokens. The base ranks each as if it were a prompt: by the attention among "
          "its own tokens, with the base's sinks and window in each. A token's score is the share of its chunk that stays "
          "before it. Generated tokens are appended.",
      .departures = {{"kvpress: rounds down how many tokens of a chunk stay, at least one",
                      "so many of all chunks together that the budget is full"}},
      .params = {policy_param("base", "snapkv.kvpress", "what ranks the tokens of a chunk"),
                 count_param("size", "1024", {1, 1 << 20}, "tokens of a chunk", "tokens")},
      .needs = {.keys = true, .queries = true},
      .needs_of = [](const Params& params) { return needs_anew(params.part("base")); },
      .layer_unit = [](const Params& params) { return params.part("base").layer_unit(); },
      .cost = cost_of,
      .check = [](const Params& params) { check_held("chunked", params.part("base")); },
      .rule = EvictionRule{.scored = true,
                           .floor = [](const Params& params) { return params.part("base").floor(); },
                           .make = made<Chunked>}};
}

}  // namespace kvsim::policy::chunked
