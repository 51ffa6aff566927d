#pragma once
/// What prefix caches of several policies and capacities hit in a trace of requests.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/requests/prefix_costs.hpp"
#include "sim/base/progress.hpp"
#include "sim/requests/prefix/block_cache.hpp"
#include "sim/requests/prefix/found_tokens.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::analysis {

/// What a row is about: all requests, or one part of them.
enum class HitParts {
  none,
  category,  ///< requests of a category
  session,   ///< requests of a session
  turn,      ///< requests that are so manieth of their session
  depth,     ///< of every prompt the tokens from 0, 1, 2, 4, 8 ... blocks on
};

/// A share of the trace stands for all of it (sim/requests/prefix/prefix_tree.hpp).
struct HitSample {
  double rate = 1;
  std::uint64_t seed = 0;
};

struct HitGrid {
  std::vector<policy::Part> policies{};
  std::vector<CacheCapacity> capacities{};
  prefix::FoundTokens found = prefix::FoundTokens::all;
  HitParts parts = HitParts::none;
  bool nodes = false;  ///< whole nodes of the radix tree are evicted, and not single blocks
  bool residency = false;
  std::optional<PrefillCost> prefill{};
  std::optional<HitSample> sample{};  ///< rows of everything alone (HitParts::none)
  unsigned threads = 0;               ///< 0: all. Never changes a row
};

struct HitRow {
  const policy::Part* policy = nullptr;  ///< null: a cache without limits, the ceiling
  std::optional<CacheCapacity> capacity{};
  bool last_half = false;  ///< of the requests, from number n / 2 on; all of them otherwise
  std::string part{};      ///< a category, session, turn, or the first token of a depth; empty: all
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0, hit_tokens = 0;
  std::uint64_t ceiling_tokens = 0;  ///< that a cache without limits hits
  // Not of a sample.
  std::optional<std::uint64_t> blocks{}, hit_blocks{};
  std::optional<std::uint64_t> wasted_blocks{};  ///< resident, but behind one that was not; none of depths
  std::optional<std::uint64_t> untouched{};      ///< requests that hit nothing
  std::optional<double> p50{}, p90{}, p99{};     ///< of the share of its prompt that a request hits
  std::optional<double> prefill_s{}, saved_s{}, saved_flops{};  ///< seconds without a cache, and saved ones
  // Of the whole trace and all its parts.
  std::optional<std::uint64_t> stored{}, evicted{};  ///< blocks
  std::optional<prefix::Residency> residency{};

  std::optional<double> hit_rate() const;  ///< of tokens; none where there are none
};

/// By policy, capacity, part and window; the ceiling is the last policy. Rows point to grid.policies. Throws
/// Error(usage) as PrefixTree and BlockCache, and for parts that the trace does not have. `progress` counts
/// cells.
std::vector<HitRow> hit_rows(const requests::RequestTrace& trace, const HitGrid& grid,
                             Progress* progress = nullptr);

/// What one request hit in one cell.
struct RequestHit {
  const policy::Part* policy = nullptr;  ///< null: the ceiling
  std::optional<CacheCapacity> capacity{};
  std::size_t request = 0;
  std::uint32_t run = 0, present = 0;  ///< blocks
  std::uint64_t hit_tokens = 0;
  std::optional<PrefillWork> prefill{}, saved{};
};
/// By policy, capacity and request.
std::vector<RequestHit> request_hits(const requests::RequestTrace& trace, const HitGrid& grid,
                                     Progress* progress = nullptr);

}  // namespace kvsim::analysis
