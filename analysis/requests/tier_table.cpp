#include "analysis/requests/tier_table.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <set>

#include "analysis/results/numbers.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/sizes.hpp"

namespace kvsim::analysis {
namespace {

using cost::Tier;

struct Shown {
  const char* heading;
  bool setting;  ///< left out where all plans agree
  std::function<std::string(const TierRow&)> text;
};

void write_head(std::ostream& out, const TableHead& head) {
  for (const auto& [name, text] : head)
    out << name << std::string(name.size() < 12 ? 12 - name.size() : 1, ' ') << text << '\n';
}

std::string capacity_text(const std::optional<TierCache>& cache) {
  if (!cache) return "none";
  return cache->capacity.bytes ? bytes_text(*cache->capacity.bytes)
                               : std::to_string(cache->capacity.tokens) + " tokens";
}

/// By name where no two policies share it.
std::string policy_text(const std::optional<TierCache>& cache, const std::set<std::string>& texts) {
  if (!cache) return "none";
  const std::string& name = cache->policy.spec->name;
  const auto same = std::count_if(texts.begin(), texts.end(), [&](const std::string& text) {
    return text.substr(0, text.find('(')) == name;
  });
  return same > 1 ? cache->policy.text() : name;
}

std::vector<Shown> shown_columns(const TierGrid& grid) {
  std::set<std::string> texts;
  for (const TierPlan& plan : grid.plans)
    for (const std::optional<TierCache>& cache : {plan.device, plan.tiers.host, plan.tiers.ssd})
      if (cache) texts.insert(cache->policy.text());
  std::vector<Shown> out;
  const std::pair<const char*, std::function<const std::optional<TierCache>&(const TierPlan&)>> places[] = {
      {"device", [](const TierPlan& plan) -> const std::optional<TierCache>& { return plan.device; }},
      {"host", [](const TierPlan& plan) -> const std::optional<TierCache>& { return plan.tiers.host; }},
      {"SSD", [](const TierPlan& plan) -> const std::optional<TierCache>& { return plan.tiers.ssd; }}};
  constexpr const char* kPolicies[] = {"device policy", "host policy", "SSD policy"};
  // One policy for all tiers of a plan is one column.
  const auto first_of = [](const TierPlan& plan) -> const std::optional<TierCache>& {
    return plan.device ? plan.device : plan.tiers.host ? plan.tiers.host : plan.tiers.ssd;
  };
  const bool shared = std::all_of(grid.plans.begin(), grid.plans.end(), [&](const TierPlan& plan) {
    const auto same = [&](const std::optional<TierCache>& cache) {
      return !cache || cache->policy.text() == first_of(plan)->policy.text();
    };
    return same(plan.tiers.host) && same(plan.tiers.ssd);
  });
  if (shared)
    out.push_back({"policy", true, [&grid, first_of, texts](const TierRow& row) {
                     return policy_text(first_of(grid.plans[row.plan]), texts);
                   }});
  for (std::size_t i = 0; i < std::size(places); ++i) {
    const auto cache_of = places[i].second;
    if (!shared)
      out.push_back({kPolicies[i], true, [&grid, cache_of, texts](const TierRow& row) {
                       return policy_text(cache_of(grid.plans[row.plan]), texts);
                     }});
    out.push_back({places[i].first, true, [&grid, cache_of](const TierRow& row) {
                     return capacity_text(cache_of(grid.plans[row.plan]));
                   }});
  }
  out.push_back({"requests", true, [](const TierRow& row) { return row.last_half ? "last half" : "all"; }});
  const auto percent = [](const char* heading, std::function<std::uint64_t(const TierRow&)> tokens) {
    return Shown{heading, false, [tokens = std::move(tokens)](const TierRow& row) {
                   return row.prompt_tokens == 0 ? "-"
                                                 : fixed_text(100.0 * static_cast<double>(tokens(row)) /
                                                                  static_cast<double>(row.prompt_tokens),
                                                              1);
                 }};
  };
  out.push_back(percent("on device %", [](const TierRow& row) { return row.device_tokens; }));
  out.push_back(percent("on host %", [](const TierRow& row) { return row.tier_tokens.host; }));
  out.push_back(percent("on SSD %", [](const TierRow& row) { return row.tier_tokens.ssd; }));
  out.push_back(
      percent("loaded %", [](const TierRow& row) { return row.loaded_tokens.host + row.loaded_tokens.ssd; }));
  const auto mean = [](const char* heading, std::function<double(const TierRow&)> seconds) {
    return Shown{heading, false, [seconds = std::move(seconds)](const TierRow& row) {
                   return row.requests == 0 ? "-"
                                            : fixed_text(seconds(row) / static_cast<double>(row.requests), 3);
                 }};
  };
  out.push_back(mean("no cache s", [](const TierRow& row) { return row.none_s; }));
  out.push_back(mean("device alone s", [](const TierRow& row) { return row.device_s; }));
  out.push_back(mean("with tiers s", [](const TierRow& row) { return row.seconds; }));
  out.push_back({"p50 s", false, [](const TierRow& row) { return fixed_text(row.p50, 3); }});
  out.push_back({"p99 s", false, [](const TierRow& row) { return fixed_text(row.p99, 3); }});
  for (const auto& [heading, tier] :
       {std::pair{"host link GiB", Tier::host}, std::pair{"SSD link GiB", Tier::ssd}}) {
    const Tier of = tier;
    out.push_back(
        {heading, false, [of](const TierRow& row) { return fixed_text(row.link_bytes[of] / kGib, 1); }});
  }
  return out;
}

}  // namespace

std::string link_text(const cost::Link& link) {
  if (!(link.bandwidth > 0)) return "none";
  // A microsecond is no whole number of binary fractions of a second.
  const double us = std::round(link.latency * 1e9) / 1e3;
  return rounded_text(link.bandwidth / 1e9, 3) + " GB/s, " + rounded_text(us, 3) + " us";
}

void write_tier_table(std::ostream& out, TableHead head, const TierGrid& grid,
                      const std::vector<TierRow>& rows) {
  if (rows.empty()) return;
  TextTable table;
  std::vector<Shown> kept;
  for (Shown& column : shown_columns(grid)) {
    const std::string first = column.text(rows.front());
    const bool differs =
        std::any_of(rows.begin(), rows.end(), [&](const TierRow& row) { return column.text(row) != first; });
    if (column.setting && !differs) {
      head.emplace_back(column.heading, first);
      continue;
    }
    table.add_column(column.heading, column.setting ? Align::left : Align::point);
    kept.push_back(std::move(column));
  }
  for (const TierRow& row : rows) {
    std::vector<std::string> fields;
    for (const Shown& column : kept) fields.push_back(column.text(row));
    table.add_row(fields);
  }
  write_head(out, head);
  out << '\n';
  table.print(out);
  out << "\n% of the tokens of prompts; seconds of a prefill, mean; loaded: what is faster to load than to "
         "compute\n";
}

void write_break_even_table(std::ostream& out, const BreakEvenGrid& grid,
                            const std::vector<BreakEvenRow>& rows) {
  const auto even = [](const std::optional<std::uint64_t>& depth) {
    return depth ? "no slower to load from " + std::to_string(*depth) + " tokens on"
                 : std::string("slower to load at the deepest");
  };
  for (std::size_t begin = 0; begin < rows.size();) {
    const BreakEvenRow& first = rows[begin];
    const BreakEvenCase& of = grid.cases[first.of];
    std::size_t end = begin;
    while (end < rows.size() && rows[end].of == first.of && rows[end].tier == first.tier) ++end;
    TextTable table;
    for (const char* heading : {"prefix tokens", "GiB", "load s", "compute s", "compute / load",
                                "equal at GB/s", "last block: load ms", "compute ms"})
      table.add_column(heading, Align::point);
    for (std::size_t i = begin; i < end; ++i) {
      const BreakEvenRow& row = rows[i];
      table.add_row({std::to_string(row.depth), fixed_text(row.bytes / kGib, 3), fixed_text(row.load_s, 4),
                     fixed_text(row.recompute_s, 4), fixed_text(row.recompute_s / row.load_s, 2),
                     row.even_bandwidth ? fixed_text(*row.even_bandwidth / 1e9, 2) : "-",
                     fixed_text(row.block_load_s * 1e3, 3), fixed_text(row.block_recompute_s * 1e3, 3)});
    }
    if (begin > 0) out << '\n';
    write_head(out, {{"model", of.model},
                     {"machine", of.machine},
                     {first.tier == Tier::host ? "host" : "SSD",
                      link_text(of.links.links[first.tier]) + ", " +
                          (first.tier == Tier::host ? of.host_kv : of.ssd_kv)},
                     {"prefix", even(first.even_depth)},
                     {"last block", even(first.block_even_depth)}});
    out << '\n';
    table.print(out);
    begin = end;
  }
  out << "\ncompute: what the prefix, or its last block of " << grid.block
      << " tokens, adds to the prefill of a prompt with\n"
      << grid.suffix << " tokens behind it\n";
}

}  // namespace kvsim::analysis
