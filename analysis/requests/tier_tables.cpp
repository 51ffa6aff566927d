#include "analysis/requests/tier_tables.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <set>

#include "analysis/results/declared_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/sizes.hpp"

namespace kvsim::analysis {
namespace {

using cost::Tier;

/// A row and the plan that it is of.
struct PlannedRow {
  const TierPlan& plan;
  const TierRow& row;
};

const Columns<PlannedRow>& tier_fields() {
  using Planned = PlannedRow;
  const auto cache = [](std::optional<Tier> tier, auto read) {
    return [=](const Planned& of) {
      const std::optional<TierCache>& found = tier ? of.plan.tiers[*tier] : of.plan.device;
      return found ? as_field(read(*found)) : Value();
    };
  };
  const auto policy = [](const TierCache& of) { return of.policy.text(); };
  const auto bytes = [](const TierCache& of) { return of.capacity.bytes; };
  const auto blocks = [](const TierCache& of) { return of.capacity.blocks; };
  const auto row = [](auto TierRow::*what) { return [what](const Planned& of) { return of.row.*what; }; };
  const auto tier = [](auto TierRow::*what, Tier which) {
    return [=](const Planned& of) { return (of.row.*what)[which]; };
  };
  const auto share = [](auto tokens) {
    return [tokens](const Planned& of) {
      return ratio(static_cast<double>(tokens(of)), static_cast<double>(of.row.prompt_tokens));
    };
  };
  static const Columns<Planned> all{
      {"device_policy", "", "of the cache on the device, with every parameter; null: there is none",
       cache({}, policy)},
      {"host_policy", "", "of the cache in host memory; null: there is none", cache(Tier::host, policy)},
      {"ssd_policy", "", "of the cache on the SSD; null: there is none", cache(Tier::ssd, policy)},
      {"device_capacity_bytes", "bytes", "for keys and values on a device", cache({}, bytes)},
      {"host_capacity_bytes", "bytes", "in host memory, for each device; null: there is none",
       cache(Tier::host, bytes)},
      {"ssd_capacity_bytes", "bytes", "on the SSD, for each device; null: there is none",
       cache(Tier::ssd, bytes)},
      {"device_blocks", "", "that its capacity holds", cache({}, blocks)},
      {"host_blocks", "", "that its capacity holds as they are stored there", cache(Tier::host, blocks)},
      {"ssd_blocks", "", "that its capacity holds as they are stored there", cache(Tier::ssd, blocks)},
      {"window", "", "all requests, or the last_half: from number n / 2 on",
       [](const Planned& of) { return of.row.last_half ? "last_half" : "all"; }},
      {"requests", "", "of the window", row(&TierRow::requests)},
      {"prompt_tokens", "tokens", "of their prompts", row(&TierRow::prompt_tokens)},
      {"device_tokens", "tokens", "of the first blocks that some tier has: those on the device",
       row(&TierRow::device_tokens)},
      {"host_tokens", "tokens", "of these, in host memory and not on the device",
       tier(&TierRow::tier_tokens, Tier::host)},
      {"ssd_tokens", "tokens", "of these, on the SSD alone", tier(&TierRow::tier_tokens, Tier::ssd)},
      {"device_share", "share", "of the prompts' tokens: device_tokens", share(row(&TierRow::device_tokens))},
      {"host_share", "share", "of the prompts' tokens: host_tokens",
       share(tier(&TierRow::tier_tokens, Tier::host))},
      {"ssd_share", "share", "of the prompts' tokens: ssd_tokens",
       share(tier(&TierRow::tier_tokens, Tier::ssd))},
      {"host_loaded_tokens", "tokens",
       "of host_tokens, those that requests load; they compute the others again",
       tier(&TierRow::loaded_tokens, Tier::host)},
      {"ssd_loaded_tokens", "tokens",
       "of ssd_tokens, those that requests load; they compute the others again",
       tier(&TierRow::loaded_tokens, Tier::ssd)},
      {"load_all", "", "requests that load all that they find behind the device", row(&TierRow::load_all)},
      {"load_some", "", "requests that load a part of what they find there, its beginning",
       row(&TierRow::load_some)},
      {"none_seconds", "s", "of all prefills without any cache", row(&TierRow::none_s)},
      {"device_seconds", "s", "of all prefills with the device's cache alone", row(&TierRow::device_s)},
      {"load_all_seconds", "s", "of all prefills that load whatever the tiers have",
       row(&TierRow::load_all_s)},
      {"seconds", "s", "of all prefills, each by its fastest choice of what it loads",
       row(&TierRow::seconds)},
      {"loading_seconds", "s", "of these, waiting for the links", row(&TierRow::loading_s)},
      {"computing_seconds", "s", "of these, computing", row(&TierRow::computing_s)},
      {"saved_seconds", "s", "none_seconds - seconds",
       [](const Planned& of) { return of.row.none_s - of.row.seconds; }},
      {"request_mean", "s", "of a request, by its fastest choice: mean",
       [](const Planned& of) { return ratio(of.row.seconds, static_cast<double>(of.row.requests)); }},
      {"request_p50", "s", "50th percentile", row(&TierRow::p50)},
      {"request_p90", "s", "90th percentile", row(&TierRow::p90)},
      {"request_p99", "s", "99th percentile", row(&TierRow::p99)},
      {"host_link_bytes", "bytes",
       "that cross the link from host memory to a device, those of the SSD included",
       tier(&TierRow::link_bytes, Tier::host)},
      {"ssd_link_bytes", "bytes", "that cross the link from the SSD", tier(&TierRow::link_bytes, Tier::ssd)},
      {"host_written_bytes", "bytes", "stored in host memory over the whole trace; null for the last half",
       tier(&TierRow::written_bytes, Tier::host)},
      {"ssd_written_bytes", "bytes", "stored on the SSD over the whole trace; null for the last half",
       tier(&TierRow::written_bytes, Tier::ssd)}};
  return all;
}

// ---- for people

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
  const auto same = std::ranges::count_if(
      texts, [&](const std::string& text) { return text.substr(0, text.find('(')) == name; });
  return same > 1 ? cache->policy.text() : name;
}

std::vector<Shown<TierRow>> shown_columns(const TierGrid& grid) {
  std::set<std::string> texts;
  for (const TierPlan& plan : grid.plans)
    for (const std::optional<TierCache>& cache : {plan.device, plan.tiers.host, plan.tiers.ssd})
      if (cache) texts.insert(cache->policy.text());
  using Cache = std::optional<TierCache>;
  struct Place {
    const char *name, *policy;
    const Cache& (*of)(const TierPlan&);
  };
  constexpr Place kPlaces[] = {
      {"device", "device policy", [](const TierPlan& plan) -> const Cache& { return plan.device; }},
      {"host", "host policy", [](const TierPlan& plan) -> const Cache& { return plan.tiers.host; }},
      {"SSD", "SSD policy", [](const TierPlan& plan) -> const Cache& { return plan.tiers.ssd; }}};
  // One policy for all tiers of a plan is one column.
  const auto first_of = [](const TierPlan& plan) -> const Cache& {
    return plan.device ? plan.device : plan.tiers.host ? plan.tiers.host : plan.tiers.ssd;
  };
  const bool shared = std::ranges::all_of(grid.plans, [&](const TierPlan& plan) {
    const auto same = [&](const Cache& cache) {
      return !cache || cache->policy.text() == first_of(plan)->policy.text();
    };
    return same(plan.tiers.host) && same(plan.tiers.ssd);
  });
  std::vector<Shown<TierRow>> out;
  const auto setting = [&](const char* heading, auto text) {
    out.push_back({heading, Align::left,
                   [&grid, text](const TierRow& row) { return text(grid.plans[row.plan]); }, true});
  };
  if (shared)
    setting("policy", [first_of, texts](const TierPlan& plan) { return policy_text(first_of(plan), texts); });
  for (const Place& place : kPlaces) {
    const auto cache_of = place.of;
    if (!shared)
      setting(place.policy,
              [cache_of, texts](const TierPlan& plan) { return policy_text(cache_of(plan), texts); });
    setting(place.name, [cache_of](const TierPlan& plan) { return capacity_text(cache_of(plan)); });
  }
  out.push_back({"requests", Align::left,
                 [](const TierRow& row) { return row.last_half ? "last half" : "all"; }, true});
  const auto number = [&](const char* heading, std::function<std::string(const TierRow&)> text) {
    out.push_back({heading, Align::point, std::move(text)});
  };
  const auto percent = [&](const char* heading, auto tokens) {
    number(heading, [tokens](const TierRow& row) {
      return row.prompt_tokens == 0
                 ? "-"
                 : fixed_text(
                       100.0 * static_cast<double>(tokens(row)) / static_cast<double>(row.prompt_tokens), 1);
    });
  };
  percent("on device %", [](const TierRow& row) { return row.device_tokens; });
  percent("on host %", [](const TierRow& row) { return row.tier_tokens.host; });
  percent("on SSD %", [](const TierRow& row) { return row.tier_tokens.ssd; });
  percent("loaded %", [](const TierRow& row) { return row.loaded_tokens.host + row.loaded_tokens.ssd; });
  const auto mean = [&](const char* heading, double TierRow::*seconds) {
    number(heading, [seconds](const TierRow& row) {
      return row.requests == 0 ? "-" : fixed_text(row.*seconds / static_cast<double>(row.requests), 3);
    });
  };
  mean("no cache s", &TierRow::none_s);
  mean("device alone s", &TierRow::device_s);
  mean("with tiers s", &TierRow::seconds);
  number("p50 s", [](const TierRow& row) { return fixed_text(row.p50, 3); });
  number("p99 s", [](const TierRow& row) { return fixed_text(row.p99, 3); });
  number("host link GiB", [](const TierRow& row) { return fixed_text(row.link_bytes.host / kGib, 1); });
  number("SSD link GiB", [](const TierRow& row) { return fixed_text(row.link_bytes.ssd / kGib, 1); });
  return out;
}

}  // namespace

const std::vector<ColumnInfo>& tier_columns() {
  static const std::vector<ColumnInfo> all = infos(tier_fields());
  return all;
}

Records tier_records(const TierGrid& grid, const std::vector<TierRow>& rows) {
  std::vector<PlannedRow> planned;
  for (const TierRow& row : rows) planned.push_back({grid.plans[row.plan], row});
  return table_of(tier_fields(), planned);
}

std::string link_text(const cost::Link& link) {
  if (!(link.bandwidth > 0)) return "none";
  // A microsecond is no whole number of binary fractions of a second.
  const double us = std::round(link.latency * 1e9) / 1e3;
  return rounded_text(link.bandwidth / 1e9, 3) + " GB/s, " + rounded_text(us, 3) + " us";
}

void write_tier_table(std::ostream& out, TableHead head, const TierGrid& grid,
                      const std::vector<TierRow>& rows) {
  if (rows.empty()) return;
  TextTable table =
      shown_table(shown_columns(grid), rows,
                  [&](const std::string& name, const std::string& text) { head.emplace_back(name, text); });
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
