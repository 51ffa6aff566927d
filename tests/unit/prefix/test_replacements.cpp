#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "random_requests.hpp"
#include "sim/base/error.hpp"
#include "sim/requests/prefix/block_cache.hpp"
#include "sim/requests/prefix/hit_replay.hpp"
#include "slow_cache.hpp"

namespace kvsim::test_replacements {

using prefix::BlockCache;
using prefix::Node;
using prefix::PrefixTree;
using requests::RequestTrace;

namespace {

policy::Part part(const std::string& text) {
  return policy::parse_replacement(text, policy::builtin());
}

std::vector<double> depth_seconds() {
  std::vector<double> out;
  for (int depth = 0; depth < 64; ++depth) out.push_back(1 + 0.37 * depth);
  return out;
}

/// Drives both with the same requests and compares what is resident and what left, in order. `holds`:
/// requests run for some time, during which their blocks are held.
void compare(const std::string& fast_text, const std::string& slow_text, const RequestTrace& trace,
             std::size_t capacity, bool holds, bool nodes = false) {
  const PrefixTree tree(trace);
  const std::vector<double> seconds = depth_seconds();
  policy::BlockSpace space = prefix::block_space(tree, capacity, seconds, trace.categories.size());
  space.nodes = nodes;
  BlockCache fast(part(fast_text), space);
  const std::unique_ptr<slow::SlowCache> slow = slow::slow_cache(slow_text, space);
  const std::vector<std::uint32_t> next = prefix::next_uses(tree, false);
  std::vector<std::span<const Node>> running;
  std::uint64_t at = 0, evictions = 0;
  for (std::size_t r = 0; r < tree.requests(); ++r) {
    const requests::Request& request = trace.requests[r];
    std::vector<std::span<const Node>> waiting;
    for (std::size_t i = r + 1; i < tree.requests() && waiting.size() < fast.lookahead(); ++i)
      waiting.push_back(tree.prompt(i));
    const policy::RequestView view{.number = r,
                                   .time_s = request.time_s,
                                   .category = request.category,
                                   .priority = request.priority,
                                   .waiting = waiting,
                                   .next_use = std::span(next).subspan(at, tree.final_path(r).size()),
                                   .path = tree.final_path(r)};
    at += view.path.size();
    fast.advance(request.time_s);
    slow->advance(request.time_s);
    REQUIRE(std::vector<Node>(fast.evicted().begin(), fast.evicted().end()) == slow->evicted);
    evictions += slow->evicted.size();
    fast.request(view);
    slow->request(view);
    INFO("request " << r);
    REQUIRE(std::vector<Node>(fast.evicted().begin(), fast.evicted().end()) == slow->evicted);
    evictions += slow->evicted.size();
    std::set<Node> resident;
    for (Node node = 0; node < tree.size(); ++node)
      if (fast.resident(node)) resident.insert(node);
    REQUIRE(resident == slow->in);
    REQUIRE(fast.size() == slow->in.size());
    REQUIRE(fast.size() <= capacity);
    if (!holds) continue;
    running.push_back(view.path.first(fast.pin(view.path)));
    slow->held.insert(running.back().begin(), running.back().end());
    if (running.size() <= 1 + r % 4) continue;
    fast.unpin(running.front());
    for (const Node node : running.front()) slow->held.erase(slow->held.find(node));
    running.erase(running.begin());
  }
  CHECK(fast.evictions() == evictions);
}

std::uint64_t total(const std::vector<std::uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::vector<prefix::CellHits> replayed(const RequestTrace& trace, const std::vector<prefix::Cell>& cells,
                                       prefix::ReplaySettings settings = {}, unsigned threads = 2) {
  Workers workers(threads);
  std::vector<prefix::CellHits> out;
  prefix::replay(PrefixTree(trace), trace, cells, settings, workers, [&](prefix::CellHits&& hits) {
    REQUIRE(hits.cell == out.size());
    out.push_back(std::move(hits));
  });
  REQUIRE(out.size() == cells.size());
  return out;
}

std::vector<prefix::Cell> every_policy(std::uint64_t capacity) {
  std::vector<prefix::Cell> out;
  for (const auto& twin : slow::kTwins) out.push_back({part(twin.first), capacity});
  return out;
}

}  // namespace

TEST_CASE("every replacement decides as its slow twin") {
  for (const auto& [fast, slow] : slow::kTwins)
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const RequestTrace trace = random_requests({.seed = seed, .requests = 150, .categories = seed % 3});
      for (const std::size_t capacity : {1, 2, 5, 13, 40})
        for (const bool holds : {false, true}) {
          INFO(fast << " seed " << seed << " capacity " << capacity << " holds " << holds);
          compare(fast, slow, trace, capacity, holds);
        }
    }
}

TEST_CASE("every replacement of radix nodes decides as its slow twin") {
  for (const auto& [fast, slow] : slow::kNodeTwins)
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      // Few branches make long nodes.
      const RequestTrace trace =
          random_requests({.seed = seed, .requests = 150, .depth = 9, .branches = 1 + seed % 3});
      for (const std::size_t capacity : {1, 2, 5, 13, 40})
        for (const bool holds : {false, true}) {
          INFO(fast << " seed " << seed << " capacity " << capacity << " holds " << holds);
          compare(fast, slow, trace, capacity, holds, true);
        }
    }
}

TEST_CASE("where all nodes have one block, LRU of nodes is LRU of blocks") {
  std::size_t differ = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    // Every prompt comes once with one block, once with two, and so on: each time one block is added at most.
    const RequestTrace whole = random_requests({.seed = seed, .requests = 120, .depth = 6});
    RequestTrace grows = whole;
    grows.requests.clear();
    for (const requests::Request& request : whole.requests)
      for (std::uint32_t blocks = 1; blocks <= request.n_blocks; ++blocks) {
        grows.requests.push_back(request);
        grows.requests.back().n_blocks = blocks;
      }
    std::vector<prefix::Cell> blocks, nodes;
    for (std::uint64_t capacity = 6; capacity <= 60; capacity += 3) {
      blocks.push_back({part("lru"), capacity});
      nodes.push_back({part("lru"), capacity, true});
    }
    const auto by_block = replayed(grows, blocks), by_node = replayed(grows, nodes);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      INFO("seed " << seed << " capacity " << blocks[i].capacity);
      CHECK(by_block[i].run == by_node[i].run);
      CHECK(by_block[i].evictions == by_node[i].evictions);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i)
      differ += replayed(whole, {blocks[i]})[0].run == replayed(whole, {nodes[i]})[0].run ? 0 : 1;
  }
  // Of whole prompts they are not the same.
  CHECK(differ > 0);
}

TEST_CASE("laws of radix nodes: no more hits than OPT, leading runs, the ceiling with room for all") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const RequestTrace trace = random_requests({.seed = seed, .requests = 400, .depth = 8});
    for (const std::uint64_t capacity : {1, 3, 8, 20, 50, 120, 100000}) {
      std::vector<prefix::Cell> cells;
      for (const auto& twin : slow::kNodeTwins) cells.push_back({part(twin.first), capacity, true});
      cells.push_back({part("opt"), capacity});
      const auto hits = replayed(trace, cells);
      for (std::size_t i = 0; i < cells.size(); ++i) {
        INFO(cells[i].policy.text() << " capacity " << capacity << " seed " << seed);
        CHECK(total(hits[i].run) <= total(hits.back().run));
        CHECK(hits[i].run == hits[i].present);
        CHECK(hits[i].stored - hits[i].evictions <= capacity);
        if (capacity == 100000) CHECK(total(hits[i].run) == total(hits.back().run));
      }
    }
    // Blocks on their own are nodes of one block.
    const auto alone = replayed(trace, {{part("lru"), 20}, {part("lru"), 20, true}}, {.independent = true});
    CHECK(alone[0].run == alone[1].run);
  }
}

TEST_CASE("every replacement has a slow twin") {
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind() != policy::Kind::replacement) continue;
    INFO(spec.name);
    CHECK(std::any_of(slow::kTwins.begin(), slow::kTwins.end(), [&](const auto& twin) {
      return twin.second.substr(0, twin.second.find(' ')) == spec.name;
    }));
  }
}

TEST_CASE("laws of replacements: no more hits than OPT, the ceiling with room for all") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const RequestTrace trace = random_requests({.seed = seed, .requests = 400, .depth = 8});
    const PrefixTree tree(trace);
    std::set<Node> seen;
    std::uint64_t ceiling = 0;
    for (std::size_t r = 0; r < tree.requests(); ++r)
      for (const Node node : tree.prompt(r)) ceiling += !seen.insert(node).second;
    std::map<std::string, std::uint64_t> before;
    for (const std::uint64_t capacity : {1, 3, 8, 20, 50, 120, 100000}) {
      const auto hits = replayed(trace, every_policy(capacity));
      const std::uint64_t best = total(hits.back().run);
      for (std::size_t i = 0; i < hits.size(); ++i) {
        INFO(slow::kTwins[i].first << " capacity " << capacity << " seed " << seed);
        CHECK(total(hits[i].run) <= best);
        CHECK(total(hits[i].present) >= total(hits[i].run));
        CHECK(hits[i].stored - hits[i].evictions <= capacity);
        // Blocks whose time is over leave an infinite cache, too.
        const bool forgets = slow::kTwins[i].first == "ttl" || slow::kTwins[i].first == "ttl(seconds=5)";
        if (capacity >= tree.size() && !forgets) {
          CHECK(total(hits[i].run) == ceiling);
          CHECK(hits[i].evictions == 0);
        }
        if (slow::kTwins[i].first != "lru" && slow::kTwins[i].first != "opt") continue;
        CHECK(total(hits[i].run) >= before[slow::kTwins[i].first]);
        CHECK(hits[i].run == hits[i].present);
        before[slow::kTwins[i].first] = total(hits[i].run);
      }
    }
  }
}

TEST_CASE("what a cache under LRU holds, every larger one holds, after every request") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const RequestTrace trace = random_requests({.seed = seed, .requests = 200, .depth = 9});
    const PrefixTree tree(trace);
    std::vector<BlockCache> caches;
    for (std::size_t capacity = 1; capacity <= 40; ++capacity)
      caches.emplace_back(part("lru"), prefix::block_space(tree, capacity));
    for (std::size_t r = 0; r < tree.requests(); ++r) {
      for (BlockCache& cache : caches) cache.request({.number = r, .path = tree.prompt(r)});
      for (std::size_t i = 0; i + 1 < caches.size(); ++i)
        for (Node node = 0; node < tree.size(); ++node)
          if (caches[i].resident(node) && !caches[i + 1].resident(node))
            FAIL("seed " << seed << " request " << r << " capacity " << i + 1 << " block " << node);
    }
    // The law says something: the caches differ, and the largest has evicted, too.
    CHECK(caches.back().size() > caches.front().size());
    CHECK(caches.back().evictions() > 0);
  }
}

TEST_CASE("LRU by stack distances is LRU cell by cell") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    RequestTrace trace = random_requests({.seed = seed, .requests = 500, .depth = 12});
    if (seed % 2 == 0) {
      // Blocks that were generated: every third request leaves the blocks of the next one behind.
      trace.generated = requests::Generated::given;
      for (std::size_t r = 0; r + 1 < trace.requests.size(); r += 3) {
        trace.requests[r].first_final_block = trace.requests[r + 1].first_block;
        trace.requests[r].n_final_blocks = trace.requests[r + 1].n_blocks;
      }
    }
    std::vector<prefix::Cell> cells;
    for (std::uint64_t capacity = 1; capacity < 90; ++capacity) cells.push_back({part("lru"), capacity});
    cells.push_back({part("lru"), 1000000});
    const auto stack = replayed(trace, cells),
               cell_by_cell = replayed(trace, cells, {.stack_distances = false});
    for (std::size_t i = 0; i < cells.size(); ++i) {
      INFO("seed " << seed << " capacity " << cells[i].capacity);
      CHECK(stack[i].run == cell_by_cell[i].run);
      CHECK(stack[i].present == cell_by_cell[i].present);
      CHECK(stack[i].stored == cell_by_cell[i].stored);
      CHECK(stack[i].evictions == cell_by_cell[i].evictions);
    }
  }
}

TEST_CASE("no order of evictions hits more than OPT") {
  // All that a cache may keep after each request is tried: any subset of what it had and what it was given.
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const RequestTrace trace = random_requests({.seed = seed, .requests = 9, .depth = 3, .branches = 2});
    const PrefixTree tree(trace);
    REQUIRE(tree.size() <= 14);
    for (const std::uint64_t capacity : {1, 2, 3, 4}) {
      std::map<std::uint32_t, std::uint64_t> best{
          {0u, 0u}};  // sets of blocks as bits, and the hits up to there
      for (std::size_t r = 0; r < tree.requests(); ++r) {
        std::map<std::uint32_t, std::uint64_t> after;
        for (const auto& [had, hits] : best) {
          std::uint32_t all = had;
          std::uint64_t run = 0;
          while (run < tree.prompt(r).size() && (had >> tree.prompt(r)[run] & 1)) ++run;
          for (const Node node : tree.prompt(r)) all |= 1u << node;
          for (std::uint32_t kept = all;; kept = (kept - 1) & all) {
            if (static_cast<std::uint64_t>(std::popcount(kept)) <= capacity) {
              std::uint64_t& most = after[kept];
              most = std::max(most, hits + run);
            }
            if (kept == 0) break;
          }
        }
        best = std::move(after);
      }
      std::uint64_t most = 0;
      for (const auto& entry : best) most = std::max(most, entry.second);
      CHECK(total(replayed(trace, {{part("opt"), capacity}}, {}, 1)[0].run) == most);
    }
  }
}

TEST_CASE("results do not depend on threads or on what is computed beside") {
  const RequestTrace trace = random_requests({.seed = 7, .requests = 300});
  std::vector<prefix::Cell> cells = every_policy(17);
  const auto one = replayed(trace, cells, {.residency = true}, 1),
             four = replayed(trace, cells, {.residency = true}, 4);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    INFO(slow::kTwins[i].first);
    CHECK(one[i].run == four[i].run);
    CHECK(one[i].residency.idle.bins == four[i].residency.idle.bins);
    CHECK(one[i].residency.lifetime.count == one[i].evictions);
    CHECK(one[i].run == replayed(trace, {cells[i]})[0].run);
  }
}

TEST_CASE("a leaf leaves before its parents, and a prompt that does not fit keeps its beginning") {
  // Two prompts of three blocks share the first; four blocks fit.
  RequestTrace trace{.format = "by hand", .block_tokens = 16};
  for (const std::vector<requests::BlockId>& prompt : std::vector<std::vector<requests::BlockId>>{
           {1, 2, 3}, {1, 4, 5}, {1, 2, 3}, {6, 7, 8, 9, 10}, {6, 7, 8, 9, 10}}) {
    requests::Request request{.time_s = double(trace.requests.size())};
    request.first_block = trace.blocks.size();
    request.n_blocks = static_cast<std::uint32_t>(prompt.size());
    trace.blocks.insert(trace.blocks.end(), prompt.begin(), prompt.end());
    trace.requests.push_back(request);
  }
  // After two prompts 1, 4, 5 and 2 are there: 3, the oldest leaf, left. The third finds 1 and 2, and 5
  // leaves for 3. The fourth keeps 6, 7, 8, 9, and the fifth finds these.
  const auto lru = replayed(trace, {{part("lru"), 4}}, {.residency = true, .stack_distances = false})[0];
  CHECK(lru.run == std::vector<std::uint32_t>{0, 1, 2, 0, 4});
  CHECK(lru.stored == 3 + 2 + 1 + 4);
  CHECK(lru.evictions == 1 + 1 + 4);
  CHECK(lru.residency.reuse_gap.count == 1 + 2 + 4);
  CHECK(lru.residency.idle.sum_s == 1 + 1 + (1 + 1 + 1 + 2));
  // FIFO lets 3, then 2 go, whose age counts: of 1, 2, 3 the last was stored first.
  const auto fifo = replayed(trace, {{part("fifo"), 4}})[0];
  CHECK(fifo.run == std::vector<std::uint32_t>{0, 1, 2, 0, 4});
  const auto opt = replayed(trace, {{part("opt"), 4}})[0];
  CHECK(opt.run == std::vector<std::uint32_t>{0, 1, 3, 0, 4});
}

TEST_CASE("blocks as requests of their own hit wherever they stand") {
  RequestTrace trace{.format = "by hand", .block_tokens = 16, .hashing = requests::Hashing::chained};
  trace.blocks = {1, 2, 3, 1, 2, 3};
  for (std::uint64_t first : {0, 3}) {
    requests::Request request{};
    request.first_block = first;
    request.n_blocks = 3;
    trace.requests.push_back(request);
  }
  // In order 1, 2, 3 a cache of two never has what comes next; prompt by prompt 1 and 2 stay.
  CHECK(replayed(trace, {{part("lru"), 2}}, {.independent = true})[0].run ==
        std::vector<std::uint32_t>{0, 0});
  CHECK(replayed(trace, {{part("lru"), 2}})[0].run == std::vector<std::uint32_t>{0, 2});
  CHECK(replayed(trace, {{part("opt"), 2}}, {.independent = true})[0].run ==
        std::vector<std::uint32_t>{0, 2});
}

TEST_CASE("mistakes with replacements are answered") {
  const policy::Registry& registry = policy::builtin();
  CHECK_THROWS_WITH(part("s3_fif"), Catch::Contains("s3_fifo"));
  CHECK_THROWS_WITH(part("lru+kivi"), Catch::Contains("one replacement policy"));
  CHECK_THROWS_WITH(part("h2o"), Catch::Contains("tokens of one sequence"));
  CHECK_THROWS_WITH(part("slru(protected=2)"), Catch::Contains("protected"));
  CHECK_THROWS_WITH(policy::parse_composition("lru", registry), Catch::Contains("prefix cache"));
  CHECK_THROWS_WITH(policy::parse_composition("h2o+arc", registry), Catch::Contains("prefix cache"));
  const RequestTrace trace = random_requests({});
  CHECK_THROWS_WITH(replayed(trace, {{part("lru"), 0}}), Catch::Contains("0 blocks"));
  CHECK_THROWS_WITH(replayed(trace, {{part("arc"), 5, true}}),
                    Catch::Contains("arc has a rule for single blocks"));
  CHECK_THROWS_WITH(replayed(trace, {{part("priority(pin=1)"), 5, true}}), Catch::Contains("by=depth"));
  for (const policy::PolicySpec& spec : registry.policies())
    if (const auto* rule = spec.as<policy::ReplacementRule>(); rule && rule->make_nodes) {
      INFO(spec.name);
      CHECK_THROWS_WITH(replayed(trace, {{part("arc"), 5, true}}), Catch::Contains(spec.name));
      CHECK(std::any_of(slow::kNodeTwins.begin(), slow::kNodeTwins.end(),
                        [&](const auto& twin) { return twin.first == spec.name; }));
    }
}

TEST_CASE("every parameter of a replacement changes what is hit") {
  const std::map<std::string, std::string> other = {
      {"slru.protected", "0.2"},   {"lfu.age", "false"},
      {"s3_fifo.small", "0.5"},    {"s3_fifo.ghost", "0"},
      {"s3_fifo.promote", "1"},    {"s3_fifo.fill", "main"},
      {"w_tinylfu.window", "0.5"}, {"w_tinylfu.protected", "0.1"},
      {"w_tinylfu.sample", "1"},   {"ttl.seconds", "3"},
      {"priority.by", "depth"},    {"priority.pin", "2"},
      {"category.life", "0.5"},    {"queue_lru.window", "0"},
      {"lhd.sample", "1"},         {"lhd.recent", "0"},
      {"lhd.period", "20"},        {"lhd.decay", "0.1"},
      {"lhd.explore", "0.5"},      {"lhd.seed", "1"}};
  // Of what is learnt after many accesses, and of blocks that few draws miss, a short trace shows nothing
  // otherwise.
  const std::map<std::string, std::string> beside = {{"lhd.recent", "sample=2,period=50"},
                                                     {"lhd.decay", "period=50"}};
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind() != policy::Kind::replacement) continue;
    for (const ParamSpec& param : spec.params) {
      INFO(spec.name << "." << param.name);
      const auto value = other.find(spec.name + "." + param.name);
      REQUIRE(value != other.end());
      bool differs = false;
      for (std::uint64_t seed = 1; seed <= 8 && !differs; ++seed) {
        const RequestTrace trace = random_requests({.seed = seed, .requests = 400, .depth = 8});
        const auto rest = beside.find(value->first);
        const std::string others = rest == beside.end() ? "" : rest->second + ",";
        const auto text = [&](const std::string& of) {
          return spec.name + "(" + others + param.name + "=" + of + ")";
        };
        const auto hits =
            replayed(trace, {{part(text(param.fallback)), 25}, {part(text(value->second)), 25}});
        differs = hits[0].run != hits[1].run;
      }
      CHECK(differs);
    }
  }
}

}  // namespace kvsim::test_replacements
