#pragma once
/// What prompts find in the tiers as a tidy table; that, and where loading is faster than computing, as
/// people read it.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/requests/break_even.hpp"
#include "analysis/requests/prefix_costs.hpp"
#include "policies/api/spec.hpp"
#include "sim/base/progress.hpp"
#include "sim/cost/tier_loading.hpp"
#include "sim/requests/prefix/found_tokens.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::analysis {

// What prompts of a trace find on the device and in the tiers behind it, and the seconds of loading that or
// computing it again.

/// A cache of blocks. Every tier sees every request: what is stored on the device is written through to the
/// tiers behind it, if it is not there yet.
struct TierCache {
  policy::Part policy{};
  CacheCapacity capacity{};
};

/// A device and what stands behind it.
struct TierPlan {
  std::optional<TierCache> device{};                ///< none: nothing stays there
  cost::PerTier<std::optional<TierCache>> tiers{};  ///< none: there is no such tier
};

struct TierGrid {
  std::vector<TierPlan> plans{};
  cost::TierLinks links{};
  PrefillCost prefill;
  prefix::FoundTokens found = prefix::FoundTokens::all;
  unsigned threads = 0;  ///< 0: all. Never changes a row
};

struct TierRow {
  std::size_t plan = 0;    ///< index into the grid's
  bool last_half = false;  ///< of the requests; all of them otherwise
  std::uint64_t requests = 0, prompt_tokens = 0;
  /// Tokens of leading runs over all tiers, by the nearest that has them.
  std::uint64_t device_tokens = 0;
  cost::PerTier<std::uint64_t> tier_tokens{};
  cost::PerTier<std::uint64_t> loaded_tokens{};  ///< of these, loaded because that is faster
  std::uint64_t load_all = 0,
                load_some = 0;  ///< requests that load everything they find behind the device, or a part
  double none_s = 0;            ///< of prefills without any cache
  double device_s = 0;          ///< with the device's cache alone
  double load_all_s = 0;        ///< always loading
  double seconds = 0;           ///< of the fastest choice for each request
  double loading_s = 0, computing_s = 0;                 ///< of these
  double p50 = 0, p90 = 0, p99 = 0;                      ///< of a request, loading and computing
  cost::PerTier<double> link_bytes{};                    ///< over each link to the device
  cost::PerTier<std::optional<double>> written_bytes{};  ///< stored in each tier over the whole trace
};

/// By plan, all requests and the last half of them (from number n / 2 on). Of a prompt the first blocks are
/// found that some tier has, each in the nearest one that does. Throws Error(usage) as PrefixTree and
/// BlockCache, and for a tier whose link the machine does not have. `progress` counts caches and plans.
std::vector<TierRow> tier_rows(const requests::RequestTrace& trace, const TierGrid& grid,
                               Progress* progress = nullptr);

/// What the table is called where several tables are read.
inline constexpr const char* kTiersTable = "tiers";

const std::vector<ColumnInfo>& tier_columns();
Records tier_records(const TierGrid& grid, const std::vector<TierRow>& rows);

/// Lines above a table: a name and what it is.
using TableHead = std::vector<std::pair<std::string, std::string>>;

/// What all plans agree in stands above the table.
void write_tier_table(std::ostream& out, TableHead head, const TierGrid& grid,
                      const std::vector<TierRow>& rows);

/// A table for each case and tier.
void write_break_even_table(std::ostream& out, const BreakEvenGrid& grid,
                            const std::vector<BreakEvenRow>& rows);

/// "52 GB/s, 6 us".
std::string link_text(const cost::Link& link);

}  // namespace kvsim::analysis
