// Splits by the importance of heads, which is known beforehand.
#include <algorithm>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/splits/head_matrix.hpp"
#include "policies/parts/splits/whole_numbers.hpp"

namespace kvsim::policy::headkv {
namespace {

class HeadKv final : public Allocation {
 public:
  explicit HeadKv(const Params& params)
      : scores_(params.word("scores")), variant_(params.word("variant")), beta_(params.real("beta")) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    const std::vector<std::vector<double>> importance = head_matrix(request, scores_);
    if (variant_ == "exact") return per_unit(request, exact(request, importance));
    require_even(request, "headkv(variant=" + variant_ + ")");
    return per_unit(request, published(request, headroom(request), importance));
  }

 private:
  /// Returns the part of a budget per head that goes into the pool.
  std::size_t pooled(std::size_t budget) const {
    return static_cast<std::size_t>(static_cast<double>(budget) / beta_);
  }

  std::vector<std::size_t> exact(const AllocationRequest& request,
                                 const std::vector<std::vector<double>>& importance) const {
    std::vector<double> of_lanes;
    of_lanes.reserve(importance.size());
    for (const std::vector<double>& group : importance)
      of_lanes.push_back(std::accumulate(group.begin(), group.end(), 0.0));
    const std::vector<double> weights = unit_means(request, of_lanes);
    std::size_t pool = 0;
    std::vector<std::size_t> base, most;
    for (const Headroom& room : rooms(request, request.units_per_layer()).of) {
      pool += pooled(room.mean);
      base.push_back(room.mean - pooled(room.mean));
      most.push_back(room.most - base.back());
    }
    std::vector<std::size_t> above = shared_out(weights, pool, most);
    for (std::size_t unit = 0; unit < above.size(); ++unit) above[unit] += base[unit];
    return above;
  }

  /// Rounds every query head's number, then averages over those that share a KV head.
  std::vector<std::size_t> published(const AllocationRequest& request, const Headroom& room,
                                     const std::vector<std::vector<double>>& importance) const {
    const std::size_t budget = variant_ == "factory" ? room.floor + room.mean : room.mean;
    const std::size_t base = budget - pooled(budget);
    double sum = 0, n_heads = 0;
    for (const std::vector<double>& group : importance) {
      sum += std::accumulate(group.begin(), group.end(), 0.0);
      n_heads += static_cast<double>(group.size());
    }
    const double pool = static_cast<double>(pooled(budget)) * n_heads;
    std::vector<double> of_lanes;
    for (const std::vector<double>& group : importance) {
      double caps = 0;
      for (const double score : group)
        caps += static_cast<double>(
            half_even((sum > 0 ? score / sum : 1 / n_heads) * pool + static_cast<double>(base)));
      of_lanes.push_back(caps / static_cast<double>(group.size()));
    }
    std::vector<std::size_t> above;
    for (const double cap : unit_means(request, of_lanes))
      above.push_back(std::min(half_even(cap), room.most));
    return above;
  }

  std::string scores_, variant_;
  double beta_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "headkv",
      .summary = "a pool is split over all heads of all layers by an importance from a file",
      .paper =
          "Fu, Cai, Asi, Xiong, Dong, Xiao, Not All Heads Matter: A Head-Level KV Cache Compression Method "
          "with Integrated Retrieval and Reasoning, ICLR 2025, https://arxiv.org/abs/2410.19258",
      .details =
          "Of the mean budget m above the eviction's floor, floor(m / beta) per head goes into one pool, the "
          "rest to every head; the pool is split in proportion to the heads' scores, whole numbers by "
          "largest remainder. Scores per query head are averaged over the heads that share a KV head. "
          "variant=official: each head's number is rounded by itself, then averaged over a group. "
          "variant=factory: the same with the floor counted in m and added again.",
      .departures = {{"KVCache-Factory: the window comes on top of the budget", "inside; variant=factory"},
                     {"authors' code: a head may be given more than the prompt holds",
                      "what it cannot use goes to the others"}},
      .params = {required_param(
                     "scores",
                     "file of importance per layer and head: JSON ({\"layer-head\": ...} or rows), TSV, CSV"),
                 real_param("beta", "1.01", {1, 1e6},
                            "the budget over the share of it that importance decides"),
                 variant_param({"official", "factory"})},
      .rule = AllocationRule{.inexact = published_variant, .make = made<HeadKv>}};
}

}  // namespace kvsim::policy::headkv
