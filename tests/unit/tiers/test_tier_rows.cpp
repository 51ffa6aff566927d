#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/requests/tier_tables.hpp"
#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/prefix/random_requests.hpp"

namespace kvsim::analysis::test_tier_rows {
namespace {

policy::Part replacement(const std::string& text) {
  return policy::parse_replacement(text, policy::builtin());
}
TierCache cache_of(const std::string& policy, std::uint64_t blocks) {
  return {replacement(policy), {.blocks = blocks}};
}
PrefillCost tiny() {
  return {cost::find_model("tinyllama-1.1b"), cost::find_machine("t4"), {}};
}
cost::TierLinks links_of(double host_rate, double ssd_rate, double latency) {
  return {.links = {.host = {.bandwidth = host_rate, .latency = latency},
                    .ssd = {.bandwidth = ssd_rate, .latency = 3 * latency}},
          .token_bytes = {.host = 22528, .ssd = 11264}};
}

requests::RequestTrace trace_of(const std::vector<std::vector<requests::BlockId>>& prompts,
                                std::uint32_t block_tokens, std::uint32_t missing = 0) {
  requests::RequestTrace trace{.format = "made", .block_tokens = block_tokens};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    requests::Request request{.time_s = static_cast<double>(i), .line = i + 1};
    request.first_block = trace.blocks.size();
    request.n_blocks = static_cast<std::uint32_t>(prompts[i].size());
    request.prompt_tokens = request.n_blocks * block_tokens - missing;
    trace.blocks.insert(trace.blocks.end(), prompts[i].begin(), prompts[i].end());
    trace.requests.push_back(request);
  }
  return trace;
}

/// A queue of blocks, each named by the whole prefix that it ends; the front leaves first.
class SlowTier {
 public:
  SlowTier(bool lru, std::size_t capacity) : lru_(lru), capacity_(capacity) {}

  bool holds(const std::string& block) const {
    return std::find(queue_.begin(), queue_.end(), block) != queue_.end();
  }
  void use(const std::vector<std::string>& path) {
    const std::set<std::string> own(
        path.begin(), path.begin() + static_cast<std::ptrdiff_t>(std::min(path.size(), capacity_)));
    for (std::size_t i = path.size(); i-- > 0;) {
      const auto found = std::find(queue_.begin(), queue_.end(), path[i]);
      if (found != queue_.end()) {
        if (lru_) std::rotate(found, found + 1, queue_.end());
        continue;
      }
      if (i >= capacity_) continue;
      if (queue_.size() == capacity_)
        queue_.erase(
            std::find_if(queue_.begin(), queue_.end(), [&](const auto& block) { return !own.count(block); }));
      queue_.push_back(path[i]);
      ++stored;
    }
  }
  std::uint64_t stored = 0;

 private:
  bool lru_;
  std::size_t capacity_;
  std::vector<std::string> queue_{};
};

/// What a row says, summed up request by request.
struct SlowRow {
  std::map<std::string, std::uint64_t> counts{};
  std::map<std::string, double> sums{};
  std::vector<double> seconds{};

  double percentile(double share) {
    std::sort(seconds.begin(), seconds.end());
    std::size_t below = 0;
    while (static_cast<double>(below + 1) < share * static_cast<double>(seconds.size())) ++below;
    return seconds[below];
  }
};

SlowRow slow_row(const requests::RequestTrace& trace, bool lru, const std::vector<std::size_t>& capacities,
                 const cost::TierLinks& links, const PrefillCost& prefill, bool last_half) {
  SlowRow out;
  std::vector<SlowTier> tiers;
  for (const std::size_t capacity : capacities) tiers.emplace_back(lru, capacity);
  for (std::size_t r = 0; r < trace.requests.size(); ++r) {
    const requests::Request& request = trace.requests[r];
    std::vector<std::string> path;
    for (const requests::BlockId id : trace.prompt_blocks(request))
      path.push_back((path.empty() ? "" : path.back()) + "/" + std::to_string(id));
    // A letter for each token that is found: d, h or s, by the first tier that has its block.
    std::string found;
    for (std::size_t i = 0; i < path.size(); ++i) {
      std::size_t tier = 0;
      while (tier < tiers.size() && !tiers[tier].holds(path[i])) ++tier;
      if (tier == tiers.size()) break;
      const std::size_t tokens =
          std::min<std::size_t>(request.prompt_tokens - i * trace.block_tokens, trace.block_tokens);
      found += std::string(tokens, "dhs"[tier]);
    }
    for (SlowTier& tier : tiers) tier.use(path);
    if (last_half && r < trace.requests.size() / 2) continue;
    const auto compute = [&](std::uint64_t cached) {
      return prefill.of(request.prompt_tokens, cached).seconds;
    };
    const auto count = [&](std::uint64_t end, char tier) {
      return static_cast<std::uint64_t>(
          std::count(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(end), tier));
    };
    // Loads of every length, and what each takes.
    const std::uint64_t first = std::min(found.find_first_not_of('d'), found.size()), all = found.size();
    std::map<std::uint64_t, double> loads;
    for (std::uint64_t end = first; end <= all; ++end) {
      if (end % trace.block_tokens != 0 && end != first && end != all) continue;
      const double host = static_cast<double>(count(end, 'h')) * links.token_bytes.host;
      const double ssd = static_cast<double>(count(end, 's')) * links.token_bytes.ssd;
      const double over_host =
          host + ssd > 0 ? (host + ssd) / links.links.host.bandwidth + links.links.host.latency : 0;
      const double over_ssd = ssd > 0 ? ssd / links.links.ssd.bandwidth + links.links.ssd.latency : 0;
      loads[end] = std::max(over_host, over_ssd);
    }
    std::uint64_t best = first;
    for (const auto& [end, seconds] : loads)
      if (seconds + compute(end) < loads[best] + compute(best)) best = end;
    const bool away = all > first, loaded = best > first;
    ++out.counts["requests"];
    out.counts["prompt"] += request.prompt_tokens;
    out.counts["device"] += count(all, 'd');
    out.counts["device behind a gap"] += count(all, 'd') - first;
    out.counts["host"] += count(all, 'h');
    out.counts["ssd"] += count(all, 's');
    out.counts["host loaded"] += count(best, 'h');
    out.counts["ssd loaded"] += count(best, 's');
    out.counts["load all"] += loaded && best == all ? 1 : 0;
    out.counts["load some"] += loaded && best < all ? 1 : 0;
    out.counts["load none"] += away && !loaded ? 1 : 0;
    out.sums["none"] += compute(0);
    out.sums["device"] += compute(first);
    out.sums["load all"] += loads[all] + compute(all);
    out.sums["loading"] += loads[best];
    out.sums["computing"] += compute(best);
    out.seconds.push_back(loads[best] + compute(best));
  }
  out.counts["host stored"] = tiers[1].stored;
  out.counts["ssd stored"] = tiers[2].stored;
  return out;
}

}  // namespace

TEST_CASE("blocks in three tiers, worked by hand", "[tier_rows]") {
  // Three blocks fit the device and six the host. The third prompt finds its three blocks on the host; the
  // fourth two, as the last one is new; the fifth two again, since the block that left the host for it was
  // the other prompt's last.
  const auto trace = trace_of({{1, 2, 3}, {4, 5, 6}, {1, 2, 3}, {4, 5, 7}, {1, 2, 8}}, 16);
  TierGrid grid{.plans = {{.device = cache_of("lru", 3), .tiers = {.host = cache_of("lru", 6), .ssd = {}}}},
                .links = links_of(1e30, 1e30, 0),
                .prefill = tiny()};
  std::vector<TierRow> rows = tier_rows(trace, grid);
  REQUIRE(rows.size() == 2);
  CHECK_FALSE(rows[0].last_half);
  CHECK(rows[0].requests == 5);
  CHECK(rows[0].prompt_tokens == 240);
  CHECK(rows[0].device_tokens == 0);
  CHECK(rows[0].tier_tokens.host == 48 + 32 + 32);
  CHECK(rows[0].tier_tokens.ssd == 0);
  // 1 to 6, then 7 and 8.
  REQUIRE(rows[0].written_bytes.host);
  CHECK(*rows[0].written_bytes.host == Approx(8 * 16 * 22528.0));
  CHECK_FALSE(rows[0].written_bytes.ssd);
  // The last half begins with the third of five.
  CHECK(rows[1].last_half);
  CHECK(rows[1].requests == 3);
  CHECK(rows[1].tier_tokens.host == 112);
  // A link without end: everything that is found is loaded, and takes no time.
  CHECK(rows[0].loaded_tokens.host == 112);
  CHECK(rows[0].loading_s == Approx(0).margin(1e-12));
  const PrefillCost prefill = tiny();
  CHECK(rows[0].seconds ==
        Approx(2 * prefill.of(48, 0).seconds + prefill.of(48, 48).seconds + 2 * prefill.of(48, 32).seconds));
  CHECK(rows[0].none_s == Approx(5 * prefill.of(48, 0).seconds));
  CHECK(rows[0].device_s == Approx(rows[0].none_s));
  // A link that carries next to nothing: everything is computed again.
  grid.links = links_of(1e-6, 1e-6, 0);
  rows = tier_rows(trace, grid);
  CHECK(rows[0].tier_tokens.host == 112);
  CHECK(rows[0].loaded_tokens.host == 0);
  CHECK(rows[0].seconds == rows[0].device_s);
  CHECK(rows[0].load_all_s > 1e9);
}

TEST_CASE("limits of tiers", "[tier_rows]") {
  const auto trace = random_requests({.seed = 5, .requests = 60});
  const auto rows_of = [&](const TierPlan& plan) {
    return tier_rows(trace, {.plans = {plan}, .links = links_of(1e9, 1e8, 1e-5), .prefill = tiny()});
  };
  // A device without end: nothing is loaded, whatever stands behind it.
  const TierRow endless =
      rows_of({.device = cache_of("lru", 1'000'000),
               .tiers = {.host = cache_of("lru", 2'000'000), .ssd = cache_of("lru", 4'000'000)}})[0];
  CHECK(endless.device_tokens > 0);
  CHECK(endless.tier_tokens.host + endless.tier_tokens.ssd == 0);
  CHECK(endless.loading_s == 0);
  CHECK(endless.seconds == endless.device_s);
  // Nothing on the host is as having no host, and nothing anywhere as having no cache.
  const TierRow no_host = rows_of({.device = cache_of("lru", 10), .tiers = {}})[0];
  CHECK(no_host.device_tokens > 0);
  CHECK(no_host.seconds == no_host.device_s);
  CHECK(no_host.link_bytes.host == 0);
  const TierRow nothing = rows_of({})[0];
  CHECK(nothing.seconds == nothing.none_s);
  // A device keeps what the host keeps: LRU caches contain smaller ones.
  const TierRow inside =
      rows_of({.device = cache_of("lru", 10), .tiers = {.host = cache_of("lru", 10), .ssd = {}}})[0];
  CHECK(inside.device_tokens == no_host.device_tokens);
  CHECK(inside.tier_tokens.host == 0);
  // Together the tiers find what the largest of them finds.
  const TierRow nested =
      rows_of({.device = cache_of("lru", 10),
               .tiers = {.host = cache_of("lru", 30), .ssd = cache_of("lru", 1'000'000)}})[0];
  CHECK(nested.device_tokens + nested.tier_tokens.host + nested.tier_tokens.ssd == endless.device_tokens);
  CHECK(nested.tier_tokens.host > 0);
  CHECK(nested.tier_tokens.ssd > 0);
  CHECK(nested.seconds <= nested.device_s);
  CHECK(nested.seconds <= nested.load_all_s);
}

TEST_CASE("a tier without a link, and a trace without blocks, are refused", "[tier_rows]") {
  const auto trace = random_requests({.requests = 10});
  TierGrid grid{.plans = {{.device = cache_of("lru", 4), .tiers = {.host = {}, .ssd = cache_of("lru", 8)}}},
                .links = links_of(1e9, 0, 0),
                .prefill = tiny()};
  CHECK_THROWS_AS(tier_rows(trace, grid), Error);
  grid.plans[0].tiers.ssd.reset();
  CHECK(tier_rows(trace, grid).size() == 2);
  requests::RequestTrace lengths;
  lengths.requests.push_back({.prompt_tokens = 5});
  CHECK_THROWS_AS(tier_rows(lengths, grid), Error);
}

TEST_CASE("tiers are those of queues and lists", "[tier_rows]") {
  std::uint64_t all = 0, some = 0, none = 0, gaps = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const auto draw = [&](std::uint64_t what) { return uniform01(combine({seed, what})); };
    requests::RequestTrace trace = random_requests({.seed = seed, .requests = 80, .depth = 9, .branches = 2});
    trace.block_tokens = 256;
    for (requests::Request& request : trace.requests)
      request.prompt_tokens = request.n_blocks * 256 - static_cast<std::uint32_t>(request.line % 3 * 100);
    const bool lru = seed % 2 == 0;
    const std::string policy = lru ? "lru" : "fifo";
    const auto links =
        links_of(std::pow(10, 7.6 + 1.5 * draw(1)), std::pow(10, 7.3 + 1.5 * draw(2)), 0.02 * draw(3));
    const std::vector<std::size_t> capacities{4 + static_cast<std::size_t>(8 * draw(4)),
                                              12 + static_cast<std::size_t>(20 * draw(5)), 60};
    const TierGrid grid{.plans = {{.device = cache_of(policy, capacities[0]),
                                   .tiers = {.host = cache_of(policy, capacities[1]),
                                             .ssd = cache_of(policy, capacities[2])}}},
                        .links = links,
                        .prefill = tiny()};
    const std::vector<TierRow> rows = tier_rows(trace, grid);
    CAPTURE(seed);
    REQUIRE(rows.size() == 2);
    for (const TierRow& row : rows) {
      SlowRow slow = slow_row(trace, lru, capacities, links, grid.prefill, row.last_half);
      CHECK(row.requests == slow.counts["requests"]);
      CHECK(row.prompt_tokens == slow.counts["prompt"]);
      CHECK(row.device_tokens == slow.counts["device"]);
      CHECK(row.tier_tokens.host == slow.counts["host"]);
      CHECK(row.tier_tokens.ssd == slow.counts["ssd"]);
      CHECK(row.loaded_tokens.host == slow.counts["host loaded"]);
      CHECK(row.loaded_tokens.ssd == slow.counts["ssd loaded"]);
      CHECK(row.load_all == slow.counts["load all"]);
      CHECK(row.load_some == slow.counts["load some"]);
      CHECK(row.none_s == Approx(slow.sums["none"]).epsilon(1e-12));
      CHECK(row.device_s == Approx(slow.sums["device"]).epsilon(1e-12));
      CHECK(row.load_all_s == Approx(slow.sums["load all"]).epsilon(1e-12));
      CHECK(row.loading_s == Approx(slow.sums["loading"]).epsilon(1e-12));
      CHECK(row.computing_s == Approx(slow.sums["computing"]).epsilon(1e-12));
      CHECK(row.seconds == Approx(slow.sums["loading"] + slow.sums["computing"]).epsilon(1e-12));
      CHECK(row.p50 == Approx(slow.percentile(0.5)).epsilon(1e-12));
      CHECK(row.p90 == Approx(slow.percentile(0.9)).epsilon(1e-12));
      CHECK(row.p99 == Approx(slow.percentile(0.99)).epsilon(1e-12));
      const double ssd_bytes = static_cast<double>(slow.counts["ssd loaded"]) * 11264;
      CHECK(row.link_bytes.ssd == Approx(ssd_bytes));
      CHECK(row.link_bytes.host ==
            Approx(ssd_bytes + static_cast<double>(slow.counts["host loaded"]) * 22528));
      if (row.last_half) continue;
      CHECK(*row.written_bytes.host == Approx(static_cast<double>(slow.counts["host stored"]) * 256 * 22528));
      CHECK(*row.written_bytes.ssd == Approx(static_cast<double>(slow.counts["ssd stored"]) * 256 * 11264));
      gaps += slow.counts["device behind a gap"];
      all += slow.counts["load all"], some += slow.counts["load some"], none += slow.counts["load none"];
    }
  }
  // The links are such that each choice is the fastest for some.
  CHECK(all > 20);
  CHECK(some > 5);
  CHECK(none > 20);
  // Under fifo, some tier has a block without the one before it.
  CHECK(gaps > 1000);
}

TEST_CASE("rows are the same at any number of threads", "[tier_rows]") {
  const auto trace = random_requests({.seed = 9, .requests = 700});
  TierGrid grid{.links = links_of(3e8, 5e7, 1e-3), .prefill = tiny()};
  for (const char* policy : {"lru", "slru", "gdsf", "opt"})
    for (const std::uint64_t host : {20U, 60U})
      grid.plans.push_back({.device = cache_of(policy, 8),
                            .tiers = {.host = cache_of(policy, host), .ssd = cache_of("lru", 200)}});
  grid.threads = 1;
  const Records one = tier_records(grid, tier_rows(trace, grid));
  grid.threads = 3;
  CHECK(one.rows == tier_records(grid, tier_rows(trace, grid)).rows);
  REQUIRE(one.rows.size() == 16);
  for (const auto& row : one.rows) CHECK(row.size() == one.columns.size());
}

}  // namespace kvsim::analysis::test_tier_rows
