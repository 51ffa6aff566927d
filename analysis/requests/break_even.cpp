#include "analysis/requests/break_even.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

using cost::Tier;

/// Of one case and tier.
class Comparison {
 public:
  Comparison(const BreakEvenGrid& grid, std::size_t of, Tier tier)
      : grid_(grid), case_(grid.cases[of]), of_(of), tier_(tier) {}

  BreakEvenRow row(std::uint64_t depth) const {
    BreakEvenRow out{.of = of_, .tier = tier_, .depth = depth};
    const cost::PerTier<cost::LinkTime> links = load(depth);
    out.bytes = links[tier_].bytes;
    out.load_s = loading_seconds(links);
    out.recompute_s = recompute(depth, 0);
    out.even_bandwidth = even_bandwidth(links, out.recompute_s);
    const std::uint64_t before = depth - std::min(depth, grid_.block);
    out.block_load_s = out.load_s - loading_seconds(load(before));
    out.block_recompute_s = recompute(depth, before);
    return out;
  }

  /// From the deepest block upwards as far as loading is no slower.
  std::optional<std::uint64_t> even_depth(bool last_block) const {
    std::optional<std::uint64_t> out;
    for (std::uint64_t depth = grid_.depths.back() / grid_.block * grid_.block; depth > 0;
         depth -= grid_.block) {
      const std::uint64_t before = last_block ? depth - grid_.block : 0;
      const double spared = last_block ? loading_seconds(load(before)) : 0;
      if (loading_seconds(load(depth)) - spared > recompute(depth, before)) break;
      out = depth;
    }
    return out;
  }

 private:
  cost::PerTier<cost::LinkTime> load(std::uint64_t tokens) const {
    cost::PerTier<std::uint64_t> of_tier;
    of_tier[tier_] = tokens;
    return loading(case_.links, of_tier);
  }
  /// What the tokens from `before` on add to a prefill of the prefix and the suffix.
  double recompute(std::uint64_t depth, std::uint64_t before) const {
    const std::uint64_t prompt = depth + grid_.suffix;
    return case_.prefill(prompt, before) - case_.prefill(prompt, depth);
  }
  std::optional<double> even_bandwidth(const cost::PerTier<cost::LinkTime>& links, double recompute_s) const {
    const cost::LinkTime& own = links[tier_];
    const double latency = own.seconds - own.bytes / case_.links.links[tier_].bandwidth;
    const double other = tier_ == Tier::ssd ? links.host.seconds : 0;
    if (recompute_s <= latency || recompute_s < other) return {};
    return own.bytes / (recompute_s - latency);
  }

  const BreakEvenGrid& grid_;
  const BreakEvenCase& case_;
  std::size_t of_;
  Tier tier_;
};

}  // namespace

std::vector<BreakEvenRow> break_even_rows(const BreakEvenGrid& grid) {
  if (grid.depths.empty() || grid.depths.front() == 0) usage_error("a prefix has a token at least", "depth");
  if (!std::ranges::is_sorted(grid.depths)) bug("depths that do not ascend");
  if (grid.block == 0) usage_error("a block has a token at least", "block");
  if (grid.suffix == 0) usage_error("a prompt whose last token is not computed has no answer", "suffix");
  std::vector<BreakEvenRow> rows;
  for (std::size_t of = 0; of < grid.cases.size(); ++of) {
    for (const Tier tier : cost::kTiers) {
      if (!(grid.cases[of].links.links[tier].bandwidth > 0)) continue;
      const Comparison comparison(grid, of, tier);
      const auto even = comparison.even_depth(false), block_even = comparison.even_depth(true);
      for (const std::uint64_t depth : grid.depths) {
        rows.push_back(comparison.row(depth));
        rows.back().even_depth = even;
        rows.back().block_even_depth = block_even;
      }
    }
  }
  if (rows.empty())
    usage_error("no machine has a link to host memory or an SSD", "tiers",
                "Say its rate, like --host-link 25GB/s,6us or --ssd-link 7GB/s,100us.");
  return rows;
}

const std::vector<ColumnInfo>& break_even_columns() {
  static const std::vector<ColumnInfo> columns{
      {"model", "", "whose prefix it is"},
      {"machine", "", "that computes and loads"},
      {"tier", "", "host or ssd: where the prefix lies"},
      {"kv", "", "how its keys and values are stored there"},
      {"depth", "tokens", "of the prefix"},
      {"bytes", "bytes", "of the prefix, over the tier's own link"},
      {"link_bandwidth", "bytes/s", "of the tier's own link"},
      {"load_seconds", "s",
       "of loading the prefix: latency and bytes over bandwidth; of the SSD over both links at once"},
      {"recompute_seconds", "s", "that computing the prefix adds to the prefill of prefix and suffix"},
      {"speedup", "", "recompute_seconds / load_seconds: above 1 loading is faster"},
      {"even_bandwidth", "bytes/s",
       "of the tier's own link at which both take as long; null: none is enough"},
      {"block_load_seconds", "s", "that the last block of the prefix adds to the load"},
      {"block_recompute_seconds", "s", "that the last block adds to the prefill, with those before it there"},
      {"even_depth", "tokens",
       "least prefix of whole blocks from which on loading is no slower; null: none up to the deepest"},
      {"block_even_depth", "tokens", "the same of the prefix's last block alone"}};
  return columns;
}

Records break_even_records(const BreakEvenGrid& grid, const std::vector<BreakEvenRow>& rows) {
  Records out{break_even_columns(), {}};
  for (const BreakEvenRow& row : rows) {
    const BreakEvenCase& of = grid.cases[row.of];
    out.rows.push_back({of.model, of.machine, std::string(cost::tier_name(row.tier)),
                        row.tier == Tier::host ? of.host_kv : of.ssd_kv, row.depth, row.bytes,
                        of.links.links[row.tier].bandwidth, row.load_s, row.recompute_s,
                        row.recompute_s / row.load_s, value_of(row.even_bandwidth), row.block_load_s,
                        row.block_recompute_s, value_of(row.even_depth), value_of(row.block_even_depth)});
  }
  return out;
}

}  // namespace kvsim::analysis
