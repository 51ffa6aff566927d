#include "analysis/requests/hit_sample.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/requests/prefix/subtree_sampling.hpp"

namespace kvsim::analysis {

std::vector<HitRow> sampled_hit_rows(const requests::RequestTrace& trace, const HitGrid& grid,
                                     Progress* progress) {
  if (grid.parts != HitParts::none || grid.residency)
    usage_error("stands for all requests together", "a sample", "Leave out parts and residencies.");
  const prefix::PrefixTree tree(trace);
  const prefix::SubtreeSample sample =
      prefix::sampled_subtrees(trace, tree, grid.sample->rate, grid.sample->seed);
  if (sample.trace.requests.empty())
    usage_error("no request is in a sample of " + std::to_string(grid.sample->rate), "a sample",
                "Say a larger share, or another seed.");
  HitGrid of_sample = grid;
  of_sample.sample.reset();
  for (CacheCapacity& capacity : of_sample.capacities)
    capacity.blocks = std::max<std::uint64_t>(sample.capacity(capacity.blocks), 1);
  const std::vector<HitRow> found = hit_rows(sample.trace, of_sample, progress);
  HitGrid nothing = grid;
  nothing.sample.reset();
  nothing.policies.clear();
  const std::vector<HitRow> ceilings = hit_rows(trace, nothing);
  std::vector<HitRow> out;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t window = i % 2;  // of every cell all requests, then the last half
    const HitRow& sampled = found[i];
    const HitRow& most = found[found.size() - 2 + window];
    HitRow row = ceilings[window];
    if (sampled.policy != nullptr) {
      const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
      const double hits =
          share(static_cast<double>(sampled.hit_tokens), static_cast<double>(most.hit_tokens));
      row.policy = &grid.policies[static_cast<std::size_t>(sampled.policy - of_sample.policies.data())];
      row.capacity = grid.capacities[(i / 2) % grid.capacities.size()];
      row.hit_tokens =
          static_cast<std::uint64_t>(std::llround(hits * static_cast<double>(row.ceiling_tokens)));
      if (row.saved_s) {
        row.saved_s = *row.saved_s * share(*sampled.saved_s, *most.saved_s);
        row.saved_flops = *row.saved_flops * share(*sampled.saved_flops, *most.saved_flops);
      }
      row.blocks = row.hit_blocks = row.wasted_blocks = row.untouched = std::nullopt;
      row.p50 = row.p90 = row.p99 = std::nullopt;
    }
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace kvsim::analysis
