#include "analysis/requests/hit_rows.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/spread.hpp"
#include "sim/base/workers.hpp"
#include "sim/requests/prefix/hit_replay.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::analysis {
namespace {

using prefix::CellHits;
using prefix::PrefixTree;
using requests::Request;
using requests::RequestTrace;

/// The parts that rows are about.
struct HitPartition {
  std::vector<std::string> names{};  ///< in the order in which parts are shown
  /// Of every request the index of its name; kNone: it is of no part. Empty for depths, which are parts of
  /// every prompt.
  std::vector<std::uint32_t> of{};
};

/// Depth 0 is the first block, depth i the blocks from 2^(i - 1) to below 2^i: the first of them.
constexpr std::uint64_t first_of_depth(std::size_t depth) {
  return depth == 0 ? 0 : std::uint64_t{1} << (depth - 1);
}

HitPartition named_parts(const RequestTrace& trace, const std::vector<std::string>& names,
                         std::uint32_t Request::*index, const char* what) {
  HitPartition out{.names = names, .of = {}};
  for (const Request& request : trace.requests) out.of.push_back(request.*index);
  if (names.empty())
    usage_error("the trace names no " + std::string(what), "--by", "Say --by depth, or leave it out.");
  return out;
}

HitPartition turn_parts(const RequestTrace& trace) {
  HitPartition out;
  for (const Request& request : trace.requests) {
    const bool known = request.turn != requests::kNone && request.turn > 0;
    out.of.push_back(known ? request.turn - 1 : requests::kNone);
  }
  // Turns that no request is of have no row; numbers from a file are not sizes.
  std::vector<std::uint32_t> turns;
  for (const std::uint32_t turn : out.of)
    if (turn != requests::kNone) turns.push_back(turn);
  std::ranges::sort(turns);
  turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
  if (turns.empty()) usage_error("the trace has no turns", "--by", "Say --by depth, or leave it out.");
  for (std::uint32_t& turn : out.of)
    if (turn != requests::kNone)
      turn = static_cast<std::uint32_t>(std::ranges::lower_bound(turns, turn) - turns.begin());
  for (const std::uint32_t turn : turns) out.names.push_back(std::to_string(std::uint64_t{turn} + 1));
  return out;
}

HitPartition depth_parts(const RequestTrace& trace) {
  std::uint32_t longest = 0;
  for (const Request& request : trace.requests) longest = std::max(longest, request.prompt_tokens);
  HitPartition out;
  for (std::size_t depth = 0; first_of_depth(depth) * trace.block_tokens < longest; ++depth)
    out.names.push_back(std::to_string(first_of_depth(depth) * trace.block_tokens));
  return out;
}

/// Throws Error(usage) where the trace has no such parts.
HitPartition partition(const RequestTrace& trace, HitParts parts) {
  switch (parts) {
    case HitParts::category:
      return named_parts(trace, trace.categories, &Request::category, "categories");
    case HitParts::session:
      return named_parts(trace, trace.sessions, &Request::session, "sessions");
    case HitParts::turn:
      return turn_parts(trace);
    case HitParts::depth:
      return depth_parts(trace);
    case HitParts::none:
      break;
  }
  return {.names = {""}, .of = std::vector<std::uint32_t>(trace.requests.size(), 0)};
}

/// Prefills of every request behind every run of blocks, each computed when it is first asked for.
class PrefillTable {
 public:
  PrefillTable(const RequestTrace& trace, const PrefillCost& cost, prefix::FoundTokens found)
      : trace_(trace), cost_(cost), found_(found), first_(trace.requests.size()) {
    std::size_t size = 0;
    for (std::size_t r = 0; r < first_.size(); ++r) {
      first_[r] = size;
      size += trace.requests[r].n_blocks + std::size_t{1};
    }
    work_.assign(size, {.seconds = std::numeric_limits<double>::quiet_NaN()});
  }

  const PrefillWork& of(std::size_t request, std::uint32_t run) {
    PrefillWork& work = work_[first_[request] + run];
    if (std::isnan(work.seconds)) {
      const Request& asked = trace_.requests[request];
      work = cost_.of(asked.prompt_tokens, prefix::found_tokens(found_, asked, run, trace_.block_tokens));
    }
    return work;
  }

 private:
  const RequestTrace& trace_;
  const PrefillCost& cost_;
  prefix::FoundTokens found_;
  std::vector<std::size_t> first_;
  std::vector<PrefillWork> work_;
};

/// Adds up what the requests of a cell hit, part by part, in all requests and in their last half.
class Summing {
 public:
  Summing(const RequestTrace& trace, const HitGrid& grid, PrefillTable* prefills,
          std::vector<std::uint32_t> ceiling)
      : trace_(trace),
        grid_(grid),
        prefills_(prefills),
        ceiling_(std::move(ceiling)),
        parts_(partition(trace, grid.parts)) {}

  const std::vector<std::uint32_t>& ceiling() const { return ceiling_; }

  /// Rows of one cell, without what is of the whole trace.
  std::vector<HitRow> rows(const std::vector<std::uint32_t>& run, const std::vector<std::uint32_t>& present) {
    std::vector<HitRow> out(2 * parts_.names.size());
    std::vector<std::vector<double>> shares(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i].part = parts_.names[i / 2];
      out[i].last_half = i % 2 == 1;
      out[i].blocks = out[i].hit_blocks = out[i].untouched = 0;
      if (grid_.parts != HitParts::depth) out[i].wasted_blocks = 0;
    }
    const std::size_t half = trace_.requests.size() / 2;
    for (std::size_t r = 0; r < trace_.requests.size(); ++r) {
      if (grid_.parts == HitParts::depth) {
        add_depths(out, r, run[r], r >= half);
        continue;
      }
      if (parts_.of[r] == requests::kNone) continue;
      const std::size_t row = 2 * std::size_t{parts_.of[r]};
      add_request(out[row], shares[row], r, run[r], present[r]);
      if (r >= half) add_request(out[row + 1], shares[row + 1], r, run[r], present[r]);
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (shares[i].empty()) continue;
      std::ranges::sort(shares[i]);
      out[i].p50 = nearest_rank(shares[i], 0.5);
      out[i].p90 = nearest_rank(shares[i], 0.9);
      out[i].p99 = nearest_rank(shares[i], 0.99);
    }
    return out;
  }

 private:
  std::uint64_t tokens(const Request& request, std::uint32_t run) const {
    return prefix::found_tokens(grid_.found, request, run, trace_.block_tokens);
  }

  void add_request(HitRow& row, std::vector<double>& shares, std::size_t r, std::uint32_t run,
                   std::uint32_t present) {
    const Request& request = trace_.requests[r];
    const std::uint64_t hit = tokens(request, run);
    ++row.requests;
    row.prompt_tokens += request.prompt_tokens;
    row.hit_tokens += hit;
    row.ceiling_tokens += tokens(request, ceiling_[r]);
    *row.blocks += request.n_blocks;
    *row.hit_blocks += run;
    *row.wasted_blocks += present - run;
    *row.untouched += hit == 0 ? 1 : 0;
    if (request.prompt_tokens > 0)
      shares.push_back(static_cast<double>(hit) / static_cast<double>(request.prompt_tokens));
    if (prefills_ == nullptr) return;
    const PrefillWork whole = prefills_->of(r, 0), rest = prefills_->of(r, run);
    row.prefill_s = row.prefill_s.value_or(0) + whole.seconds;
    row.saved_s = row.saved_s.value_or(0) + (whole.seconds - rest.seconds);
    row.saved_flops = row.saved_flops.value_or(0) + (whole.flops - rest.flops);
  }

  void add_depths(std::vector<HitRow>& out, std::size_t r, std::uint32_t run, bool last_half) const {
    const Request& request = trace_.requests[r];
    const std::uint64_t hit = tokens(request, run), most = tokens(request, ceiling_[r]);
    for (std::size_t bin = 0; first_of_depth(bin) * trace_.block_tokens < request.prompt_tokens; ++bin) {
      const std::uint64_t first = first_of_depth(bin), end = first_of_depth(bin + 1);
      const auto within = [&](std::uint64_t count, std::uint64_t unit) {
        return std::clamp(count, first * unit, end * unit) - first * unit;
      };
      for (HitRow* row : {&out[2 * bin], last_half ? &out[2 * bin + 1] : nullptr}) {
        if (row == nullptr) continue;
        ++row->requests;
        row->prompt_tokens += within(request.prompt_tokens, trace_.block_tokens);
        row->hit_tokens += within(hit, trace_.block_tokens);
        row->ceiling_tokens += within(most, trace_.block_tokens);
        *row->blocks += within(request.n_blocks, 1);
        *row->hit_blocks += within(run, 1);
        *row->untouched += run <= first ? 1 : 0;
      }
    }
  }

  const RequestTrace& trace_;
  const HitGrid& grid_;
  PrefillTable* prefills_;
  std::vector<std::uint32_t> ceiling_;
  HitPartition parts_;
};

/// One cell with what its requests hit.
struct Visit {
  const policy::Part* policy = nullptr;
  std::optional<CacheCapacity> capacity{};
  const CellHits* hits = nullptr;
};

/// Replays the grid; the ceiling comes last.
void visit_cells(const RequestTrace& trace, const PrefixTree& tree, const HitGrid& grid,
                 const std::vector<std::uint32_t>& ceiling, Progress* progress,
                 const std::function<void(const Visit&)>& visit) {
  std::vector<prefix::Cell> cells;
  for (const policy::Part& policy : grid.policies)
    for (const CacheCapacity& capacity : grid.capacities)
      cells.push_back({policy, capacity.blocks, grid.nodes});
  prefix::ReplaySettings settings{.residency = grid.residency};
  std::vector<double> seconds;
  if (grid.prefill) {
    const auto depths = tree.depths();
    seconds = grid.prefill->seconds_of_blocks(trace.block_tokens,
                                              std::size_t{*std::ranges::max_element(depths)} + 1);
    settings.seconds = seconds;
  }
  if (progress != nullptr) progress->total = cells.size();
  Workers workers(grid.threads);
  prefix::replay(tree, trace, cells, settings, workers, [&](CellHits&& hits) {
    if (progress != nullptr) progress->check();
    const std::size_t policy = hits.cell / grid.capacities.size();
    visit({&grid.policies[policy], grid.capacities[hits.cell % grid.capacities.size()], &hits});
    if (progress != nullptr) progress->advance();
  });
  CellHits unlimited{.run = ceiling, .present = ceiling};
  visit({nullptr, {}, &unlimited});
}

/// Rows of all requests and of their last half, from grid.sample: what a cache without limits hits is known
/// of the trace and of the sample, and other hits are to it as in the sample.
std::vector<HitRow> sampled_hit_rows(const RequestTrace& trace, const HitGrid& grid, Progress* progress) {
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

}  // namespace

std::optional<double> HitRow::hit_rate() const {
  if (prompt_tokens == 0) return {};
  return static_cast<double>(hit_tokens) / static_cast<double>(prompt_tokens);
}

std::vector<HitRow> hit_rows(const RequestTrace& trace, const HitGrid& grid, Progress* progress) {
  if (grid.sample) return sampled_hit_rows(trace, grid, progress);
  const PrefixTree tree(trace);
  std::optional<PrefillTable> prefills;
  if (grid.prefill && grid.parts != HitParts::depth) prefills.emplace(trace, *grid.prefill, grid.found);
  Summing summing(trace, grid, prefills ? &*prefills : nullptr, prefix::unlimited_runs(tree));
  std::vector<HitRow> out;
  visit_cells(trace, tree, grid, summing.ceiling(), progress, [&](const Visit& cell) {
    for (HitRow& row : summing.rows(cell.hits->run, cell.hits->present)) {
      row.policy = cell.policy;
      row.capacity = cell.capacity;
      if (cell.policy != nullptr) {
        row.stored = cell.hits->stored;
        row.evicted = cell.hits->evictions;
        if (grid.residency) row.residency = cell.hits->residency;
      }
      out.push_back(std::move(row));
    }
  });
  return out;
}

std::vector<RequestHit> request_hits(const RequestTrace& trace, const HitGrid& grid, Progress* progress) {
  const PrefixTree tree(trace);
  std::optional<PrefillTable> prefills;
  if (grid.prefill) prefills.emplace(trace, *grid.prefill, grid.found);
  std::vector<RequestHit> out;
  visit_cells(trace, tree, grid, prefix::unlimited_runs(tree), progress, [&](const Visit& cell) {
    for (std::size_t r = 0; r < trace.requests.size(); ++r) {
      RequestHit hit{cell.policy, cell.capacity, r, cell.hits->run[r], cell.hits->present[r]};
      hit.hit_tokens = prefix::found_tokens(grid.found, trace.requests[r], hit.run, trace.block_tokens);
      if (prefills) {
        const PrefillWork whole = prefills->of(r, 0), rest = prefills->of(r, hit.run);
        hit.prefill = whole;
        hit.saved = PrefillWork{whole.seconds - rest.seconds, whole.flops - rest.flops};
      }
      out.push_back(hit);
    }
  });
  return out;
}

}  // namespace kvsim::analysis
