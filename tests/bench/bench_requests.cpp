// Replays of prefix caches: how fast they are, what their state takes, and what they hit in a stream of
// unrelated blocks, for compare_libcachesim.py.
//   bench_requests TRACE               speed and memory
//   bench_requests TRACE independent   answers lines "POLICY CAPACITY" with accesses, seconds, seconds of
//                                      building the tree, and hits of every request
#include <malloc.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "paired.hpp"
#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/requests/prefix/block_cache.hpp"
#include "sim/requests/prefix/hit_replay.hpp"
#include "traces/requests/read_requests.hpp"

using namespace kvsim;

namespace {

prefix::Cell cell(const std::string& policy, std::uint64_t capacity) {
  return {policy::parse_replacement(policy, policy::builtin()), capacity};
}

void independent(const requests::RequestTrace& trace) {
  Workers one(1);
  std::string policy;
  std::uint64_t capacity = 0;
  while (std::cin >> policy >> capacity) {
    const std::vector<prefix::Cell> cells{cell(policy, capacity)};
    std::optional<prefix::PrefixTree> tree;
    const double building = bench::seconds([&] { tree.emplace(trace); });
    std::vector<std::uint32_t> hits;
    const double took = bench::seconds([&] {
      prefix::replay(*tree, trace, cells, {.independent = true}, one,
                     [&](prefix::CellHits&& of) { hits = std::move(of.run); });
    });
    std::printf("%zu %.6f %.6f", trace.blocks.size(), took, building);
    for (const std::uint32_t of_request : hits) std::printf(" %u", of_request);
    std::printf("\n");
    std::fflush(stdout);
  }
}

/// Bytes that the program has from the allocator.
double held_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

/// What `made` builds holds when all requests have gone through it, in bytes for each different block.
void state(const char* name, const prefix::PrefixTree& tree, const auto& made) {
  const double before = held_bytes();
  const auto kept = made();
  std::printf("%-12s %6.1f bytes for each different block\n", name,
              (held_bytes() - before) / static_cast<double>(tree.size()));
}

void memory(const requests::RequestTrace& trace, const prefix::PrefixTree& tree) {
  std::printf("state after the trace, of a fifth of the different blocks as capacity\n");
  state("tree", tree, [&] { return std::make_unique<prefix::PrefixTree>(trace); });
  state("LRU's stack", tree, [&] {
    auto stack = std::make_unique<prefix::LruStack>(tree);
    for (std::uint32_t i = 0; i < tree.requests(); ++i) stack->touch(tree.prompt(i), i);
    return stack;
  });
  // Of all cells together, and not of each: what opt reads.
  const std::vector<std::uint32_t> next = prefix::next_uses(tree, false);
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (!spec.as<policy::ReplacementRule>()) continue;
    state(spec.name.c_str(), tree, [&] {
      auto cache = std::make_unique<prefix::BlockCache>(
          policy::parse_replacement(spec.name, policy::builtin()),
          prefix::block_space(tree, tree.size() / 5, {}, trace.categories.size()));
      std::size_t at = 0;
      for (std::uint32_t i = 0; i < tree.requests(); ++i) {
        const std::span<const prefix::Node> path = tree.final_path(i);
        cache->request({.number = i,
                        .time_s = trace.requests[i].time_s,
                        .next_use = std::span(next).subspan(at, path.size()),
                        .path = path});
        at += path.size();
      }
      return cache;
    });
  }
}

/// The fastest of several runs, in seconds.
double best_of(int runs, const auto& work) {
  double best = bench::seconds(work);
  for (int i = 1; i < runs; ++i) best = std::min(best, bench::seconds(work));
  return best;
}

void speed(const requests::RequestTrace& trace, const prefix::PrefixTree& tree) {
  const auto blocks = static_cast<double>(trace.blocks.size());
  const auto run = [&](const std::vector<prefix::Cell>& cells, bool stack, unsigned threads) {
    Workers workers(threads);
    prefix::replay(tree, trace, cells, {.stack_distances = stack}, workers, [](prefix::CellHits&&) {});
  };
  std::printf("%zu requests, %.0f blocks, %zu different\n", trace.requests.size(), blocks, tree.size());
  std::vector<std::uint64_t> capacities;
  for (std::size_t i = 0; i < 20; ++i)
    capacities.push_back(std::max<std::uint64_t>(tree.size() * (i + 1) / 20, 1));

  const double building = best_of(3, [&] { prefix::PrefixTree(trace).size(); });
  std::printf("building the tree                       %8.1f ms  %6.1f M blocks/s\n", building * 1e3,
              blocks / building / 1e6);
  for (const std::string policy : {"lru", "fifo", "sieve", "s3_fifo", "arc", "slru", "w_tinylfu", "lfu",
                                   "lhd", "gdsf", "category", "opt"}) {
    const double took = best_of(3, [&] { run({cell(policy, capacities[3])}, false, 1); });
    std::printf("%-12s one capacity, cell by cell    %8.1f ms  %6.1f M blocks/s\n", policy.c_str(),
                took * 1e3, blocks / took / 1e6);
  }
  std::vector<prefix::Cell> lru, all;
  for (const std::uint64_t capacity : capacities) {
    lru.push_back(cell("lru", capacity));
    for (const std::string policy : {"fifo", "lru", "slru", "lfu", "arc", "sieve", "s3_fifo", "w_tinylfu",
                                     "ttl", "category", "gdsf", "opt"})
      all.push_back(cell(policy, capacity));
  }
  const double stack = best_of(3, [&] { run(lru, true, 1); });
  std::printf(
      "lru          20 capacities, one pass    %8.1f ms  %6.1f M blocks/s, %.0f M blocks and capacities/s\n",
      stack * 1e3, blocks / stack / 1e6, 20 * blocks / stack / 1e6);
  bench::report("lru at 20 capacities, one pass / one by one",
                bench::paired([&] { run(lru, true, 1); }, [&] { run(lru, false, 1); }, 5));
  const double one = best_of(1, [&] { run(all, true, 1); }), two = best_of(1, [&] { run(all, true, 2); });
  std::printf("12 policies at 20 capacities            %8.1f ms on one thread, %.1f ms on two\n", one * 1e3,
              two * 1e3);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string path =
      argc > 1 ? argv[1] : KVSIM_SOURCE_DIR "/traces/sample/requests/mooncake_conversation.jsonl.gz";
  const requests::RequestTrace trace = requests::read_requests(path);
  if (argc == 3 && std::string(argv[2]) == "independent") {
    independent(trace);
    return 0;
  }
  const prefix::PrefixTree tree(trace);
  speed(trace, tree);
  memory(trace, tree);
  return 0;
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return static_cast<int>(error.kind());
}
