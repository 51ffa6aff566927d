// Replays of prefix caches: how fast LRU is, what all policies at many capacities take, and what they hit in
// a stream of unrelated blocks, for compare_libcachesim.py.
//   bench_requests TRACE                                       speed
//   bench_requests TRACE independent POLICY,.. CAPACITY,..     lines of: policy capacity hits accesses
//   seconds
#include <cstdio>
#include <iostream>
#include <numeric>
#include <string>

#include "paired.hpp"
#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/prefix/hit_replay.hpp"
#include "traces/requests/read_requests.hpp"

using namespace kvsim;

namespace {

std::vector<std::string> items(const std::string& list) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    out.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

prefix::Cell cell(const std::string& policy, std::uint64_t capacity) {
  return {policy::parse_replacement(policy, policy::builtin()), capacity};
}

std::uint64_t total(const std::vector<std::uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

void independent(const requests::RequestTrace& trace, const prefix::PrefixTree& tree,
                 const std::string& policies, const std::string& capacities) {
  Workers one(1);
  for (const std::string& policy : items(policies))
    for (const std::string& capacity : items(capacities)) {
      const std::vector<prefix::Cell> cells{cell(policy, std::stoull(capacity))};
      std::uint64_t hits = 0;
      const double took = bench::seconds([&] {
        prefix::replay(tree, trace, cells, {.independent = true}, one,
                       [&](prefix::CellHits&& of) { hits = total(of.run); });
      });
      std::printf("%s %s %llu %zu %.6f\n", policy.c_str(), capacity.c_str(),
                  static_cast<unsigned long long>(hits), trace.blocks.size(), took);
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
  const double one = best_of(1, [&] { run(all, true, 1); }), two = best_of(1, [&] { run(all, true, 2); });
  std::printf("12 policies at 20 capacities            %8.1f ms on one thread, %.1f ms on two\n", one * 1e3,
              two * 1e3);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string path =
      argc > 1 ? argv[1] : KVSIM_SOURCE_DIR "/traces/sample/requests/mooncake_conversation.jsonl.gz";
  const requests::RequestTrace trace = requests::read_requests(path);
  const prefix::PrefixTree tree(trace);
  if (argc == 5 && std::string(argv[2]) == "independent")
    independent(trace, tree, argv[3], argv[4]);
  else
    speed(trace, tree);
  return 0;
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return static_cast<int>(error.kind());
}
