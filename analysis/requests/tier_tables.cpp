#include "analysis/requests/tier_tables.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "analysis/results/declared_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/spread.hpp"
#include "sim/base/workers.hpp"
#include "sim/requests/prefix/hit_replay.hpp"

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
