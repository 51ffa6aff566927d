#include "analysis/requests/tier_rows.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/nearest_rank.hpp"
#include "sim/base/workers.hpp"
#include "sim/requests/prefix/hit_replay.hpp"

namespace kvsim::analysis {
namespace {

using cost::FoundPrompt;
using cost::Holder;
using cost::kTiers;
using cost::LoadChoice;
using cost::PerTier;
using cost::Tier;

/// What a request does under a plan.
struct Served {
  std::uint64_t prompt = 0, found = 0, device = 0;  ///< tokens
  PerTier<std::uint64_t> tiers{};                   ///< tokens found in each
  LoadChoice choice{};
  double device_s = 0, load_all_s = 0;
};

/// Different caches of all plans: each is replayed once.
class Caches {
 public:
  std::size_t add(const TierCache& cache) {
    const auto [found, fresh] =
        places_.emplace(std::pair(cache.policy.text(), cache.capacity.blocks), cells_.size());
    if (fresh) cells_.push_back({cache.policy, cache.capacity.blocks});
    return found->second;
  }
  std::size_t size() const { return cells_.size(); }
  void replay(const prefix::PrefixTree& tree, const requests::RequestTrace& trace,
              std::span<const double> seconds, Workers& workers, Progress* progress) {
    resident_.resize(cells_.size());
    stored_.resize(cells_.size());
    prefix::replay(tree, trace, cells_, {.seconds = seconds, .resident = true}, workers,
                   [&](prefix::CellHits&& hits) {
                     if (progress != nullptr) progress->check();
                     resident_[hits.cell] = std::move(hits.resident);
                     stored_[hits.cell] = hits.stored;
                     if (progress != nullptr) progress->advance();
                   });
  }
  /// The block of this number, of all prompts'.
  bool resident(std::size_t cache, std::size_t block) const { return resident_[cache][block]; }
  std::uint64_t stored(std::size_t cache) const { return stored_[cache]; }

 private:
  std::map<std::pair<std::string, std::uint64_t>, std::size_t> places_;
  std::vector<prefix::Cell> cells_;
  std::vector<std::vector<bool>> resident_;
  std::vector<std::uint64_t> stored_;
};

/// The caches of a plan.
struct Places {
  std::optional<std::size_t> device{};
  PerTier<std::optional<std::size_t>> tiers{};
};

Places places_of(const TierPlan& plan, const cost::TierLinks& links, Caches& caches) {
  Places out;
  if (plan.device) out.device = caches.add(*plan.device);
  for (const Tier tier : kTiers) {
    const std::optional<TierCache>& cache = plan.tiers[tier];
    if (!cache) continue;
    if (!(links.links[tier].bandwidth > 0))
      usage_error(
          tier == Tier::host ? "the machine has no link to host memory" : "the machine has no link to an SSD",
          std::string("cache in tier ") + cost::tier_name(tier),
          std::string("Say its rate, like --") + cost::tier_name(tier) + "-link 7GB/s,100us, or add \"" +
              cost::tier_name(tier) + "_link\" to the machine's file.");
    out.tiers[tier] = caches.add(*cache);
  }
  return out;
}

class Replayed {
 public:
  Replayed(const requests::RequestTrace& trace, const TierGrid& grid, const prefix::PrefixTree& tree,
           Progress* progress)
      : trace_(trace), grid_(grid) {
    std::uint64_t blocks = 0;
    for (const requests::Request& request : trace.requests) {
      first_blocks_.push_back(blocks);
      blocks += request.n_blocks;
    }
    for (const TierPlan& plan : grid.plans) places_.push_back(places_of(plan, grid.links, caches_));
    std::uint32_t deepest = 0;
    for (const std::uint32_t depth : tree.depths()) deepest = std::max(deepest, depth);
    const std::vector<double> seconds =
        grid.prefill.seconds_of_blocks(trace.block_tokens, deepest + std::size_t{1});
    if (progress != nullptr) progress->total = caches_.size() + grid.plans.size();
    Workers workers(grid.threads);
    caches_.replay(tree, trace, seconds, workers, progress);
  }

  FoundPrompt find(std::size_t plan, std::size_t request) const {
    const requests::Request& asked = trace_.requests[request];
    FoundPrompt out{.prompt = asked.prompt_tokens};
    const auto tokens = [&](std::uint64_t run) {
      return found_tokens(grid_.found, asked, run, trace_.block_tokens);
    };
    for (std::uint64_t i = 0; i < asked.n_blocks; ++i) {
      const std::optional<Holder> holder = holder_of(places_[plan], first_blocks_[request] + i);
      if (!holder) break;
      if (out.stretches.empty() || out.stretches.back().holder != *holder)
        out.stretches.push_back({*holder, 0});
      out.stretches.back().tokens += tokens(i + 1) - tokens(i);
    }
    return out;
  }

  Served serve(std::size_t plan, std::size_t request) const {
    const FoundPrompt found = find(plan, request);
    const cost::PrefillSeconds prefill = [&](std::uint64_t cached) {
      return grid_.prefill.of(found.prompt, cached).seconds;
    };
    return {.prompt = found.prompt,
            .found = found.found(),
            .device = found.found(Holder::device),
            .tiers = {.host = found.found(Holder::host), .ssd = found.found(Holder::ssd)},
            .choice = cheapest_load(grid_.links, found, trace_.block_tokens, prefill),
            .device_s = prefill(found.on_device()),
            .load_all_s = load_up_to(grid_.links, found, found.found(), prefill).seconds()};
  }

  PerTier<std::optional<double>> written(std::size_t plan) const {
    PerTier<std::optional<double>> out;
    for (const Tier tier : kTiers)
      if (const auto& cache = places_[plan].tiers[tier])
        out[tier] =
            static_cast<double>(caches_.stored(*cache) * trace_.block_tokens) * grid_.links.token_bytes[tier];
    return out;
  }

 private:
  std::optional<Holder> holder_of(const Places& places, std::size_t block) const {
    const auto has = [&](const std::optional<std::size_t>& cache) {
      return cache && caches_.resident(*cache, block);
    };
    if (has(places.device)) return Holder::device;
    if (has(places.tiers.host)) return Holder::host;
    if (has(places.tiers.ssd)) return Holder::ssd;
    return {};
  }

  const requests::RequestTrace& trace_;
  const TierGrid& grid_;
  std::vector<std::uint64_t> first_blocks_;  ///< of every request's prompt, in the order of requests
  Caches caches_;
  std::vector<Places> places_;
};

TierRow row_of(std::span<const Served> served, std::span<const double> none) {
  TierRow row{.requests = served.size()};
  std::vector<double> seconds;
  for (std::size_t i = 0; i < served.size(); ++i) {
    const Served& one = served[i];
    const std::uint64_t loaded = one.choice.tokens.host + one.choice.tokens.ssd;
    row.prompt_tokens += one.prompt;
    row.device_tokens += one.device;
    if (loaded > 0) ++(one.choice.cached == one.found ? row.load_all : row.load_some);
    for (const Tier tier : kTiers) {
      row.tier_tokens[tier] += one.tiers[tier];
      row.loaded_tokens[tier] += one.choice.tokens[tier];
      row.link_bytes[tier] += one.choice.links[tier].bytes;
    }
    row.none_s += none[i];
    row.device_s += one.device_s;
    row.load_all_s += one.load_all_s;
    row.loading_s += one.choice.loading;
    row.computing_s += one.choice.computing;
    row.seconds += one.choice.seconds();
    seconds.push_back(one.choice.seconds());
  }
  if (seconds.empty()) return row;
  std::ranges::sort(seconds);
  row.p50 = nearest_rank(seconds, 0.5);
  row.p90 = nearest_rank(seconds, 0.9);
  row.p99 = nearest_rank(seconds, 0.99);
  return row;
}

}  // namespace

std::vector<TierRow> tier_rows(const requests::RequestTrace& trace, const TierGrid& grid,
                               Progress* progress) {
  const prefix::PrefixTree tree(trace);
  const Replayed replayed(trace, grid, tree, progress);
  const std::size_t requests = trace.requests.size();
  constexpr std::size_t kPerTask = 256;
  const std::size_t tasks = tasks_of(requests, kPerTask);
  Workers workers(grid.threads);
  const auto each = [&](const auto& of_request) {
    workers.run(tasks, [&](std::size_t task) {
      const std::size_t end = std::min(requests, (task + 1) * kPerTask);
      for (std::size_t i = task * kPerTask; i < end; ++i) of_request(i);
    });
  };
  std::vector<double> none(requests);
  each([&](std::size_t i) { none[i] = grid.prefill.of(trace.requests[i].prompt_tokens, 0).seconds; });
  std::vector<TierRow> rows;
  std::vector<Served> served(requests);
  for (std::size_t plan = 0; plan < grid.plans.size(); ++plan) {
    if (progress != nullptr) progress->check();
    each([&](std::size_t i) { served[i] = replayed.serve(plan, i); });
    for (const bool last_half : {false, true}) {
      const std::size_t from = last_half ? requests / 2 : 0;
      TierRow row = row_of(std::span(served).subspan(from), std::span(none).subspan(from));
      row.plan = plan;
      row.last_half = last_half;
      if (!last_half) row.written_bytes = replayed.written(plan);
      rows.push_back(row);
    }
    if (progress != nullptr) progress->advance();
  }
  return rows;
}

}  // namespace kvsim::analysis
