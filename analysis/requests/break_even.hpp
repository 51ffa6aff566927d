#pragma once
/// Loading the keys and values of a prefix from a tier behind the device against computing them again, by
/// depth and machine.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/cost/tier_loading.hpp"

namespace kvsim::analysis {

/// Seconds of computing a prompt whose first `cached` tokens are there.
using PromptSeconds = std::function<double(std::uint64_t prompt, std::uint64_t cached)>;

/// A machine that serves a model, with its tiers.
struct BreakEvenCase {
  std::string model{}, machine{}, host_kv{}, ssd_kv{};
  cost::TierLinks links{};
  PromptSeconds prefill{};
};

struct BreakEvenGrid {
  std::vector<BreakEvenCase> cases{};
  std::vector<std::uint64_t> depths{};  ///< tokens of prefixes, ascending, each at least 1
  std::uint64_t block = 512;            ///< tokens
  std::uint64_t suffix =
      512;  ///< tokens behind the prefix, which are computed whatever is loaded; at least 1
};

/// A prefix of `depth` tokens in one tier, before a suffix of q tokens.
struct BreakEvenRow {
  std::size_t of = 0;  ///< index into the grid's cases
  cost::Tier tier = cost::Tier::host;
  std::uint64_t depth = 0;
  double bytes = 0;   ///< that cross the tier's own link
  double load_s = 0;  ///< of loading the prefix
  double recompute_s =
      0;  ///< prefill(depth + q, 0) - prefill(depth + q, depth): what the prefix adds to a prefill
  /// Bytes per second of the tier's own link at which both are equal; none where the time is up before the
  /// first byte comes, by latency or by the other link.
  std::optional<double> even_bandwidth{};
  // Of the last block of the prefix alone (of depth tokens where these are fewer), the blocks before it being
  // there.
  double block_load_s = 0;       ///< by which loading it makes the load longer
  double block_recompute_s = 0;  ///< prefill(depth + q, depth - block) - prefill(depth + q, depth)
  /// The least multiple of the block from which on, up to the deepest of the grid, loading a prefix is no
  /// slower than computing it again; none: it is slower at the deepest one. Of the last block alone in the
  /// same way.
  std::optional<std::uint64_t> even_depth{}, block_even_depth{};
};

/// By case, tier that the machine has a link to, and depth. Throws Error(usage) for a grid without depths, a
/// block or a suffix of no tokens, and where no case has a tier.
std::vector<BreakEvenRow> break_even_rows(const BreakEvenGrid& grid);

/// What the table is called where several tables are read.
inline constexpr const char* kBreakEvenTable = "break-even";

const std::vector<ColumnInfo>& break_even_columns();
Records break_even_records(const BreakEvenGrid& grid, const std::vector<BreakEvenRow>& rows);

}  // namespace kvsim::analysis
