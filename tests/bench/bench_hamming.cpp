// Compares the scan for the farthest hash with the memory that it must read.
//
// Baselines take turns with it in one process: adding up the same codes, which costs as much as reading them,
// and the scan as released codes do it, with one byte per bit. The scan also reads a position per code (to
// know which are protected), half as many bytes again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "policies/parts/index/fingerprints.hpp"
#include "sim/base/rng.hpp"
#include "tests/bench/paired.hpp"

using namespace kvsim;

namespace {

using policy::Position;
constexpr std::size_t kSinks = 4, kWindow = 10;

struct Cache {
  std::vector<std::uint64_t> codes;
  std::vector<Position> positions;

  explicit Cache(std::size_t slots, std::size_t bits) {
    for (std::size_t i = 0; i < slots; ++i) {
      codes.push_back(mix(i) >> (64 - bits));
      positions.push_back(static_cast<Position>(i));
    }
    // As after many evictions, the slots behind the sinks are in no order.
    for (std::size_t i = slots - 1; i > kSinks; --i)
      std::swap(positions[i], positions[kSinks + mix(i) % (i + 1 - kSinks)]);
  }
  policy::Choosable choosable() const { return {kSinks, static_cast<Position>(codes.size() - kWindow)}; }
};

/// One byte per bit, one loop per slot, nothing precomputed.
struct UnpackedCache {
  std::size_t bits;
  std::vector<std::uint8_t> codes;
  UnpackedCache(const Cache& cache, std::size_t n_bits) : bits(n_bits) {
    for (const std::uint64_t code : cache.codes)
      for (std::size_t b = 0; b < bits; ++b) codes.push_back(code >> b & 1);
  }
  std::size_t farthest(const std::vector<Position>& positions, std::uint64_t query,
                       policy::Choosable choosable) const {
    std::vector<std::uint8_t> wanted;
    for (std::size_t b = 0; b < bits; ++b) wanted.push_back(query >> b & 1);
    std::size_t best = positions.size();
    int most = -1;
    for (std::size_t slot = 0; slot < positions.size(); ++slot) {
      int distance = 0;
      for (std::size_t b = 0; b < bits; ++b) distance += codes[slot * bits + b] != wanted[b] ? 1 : 0;
      const bool free = positions[slot] >= choosable.first && positions[slot] < choosable.last;
      if (free && distance > most) {
        most = distance;
        best = slot;
      }
    }
    return best;
  }
};

std::uint64_t used = 0;  // keeps loops from being optimised away

void compare(std::size_t slots, std::size_t bits, std::size_t heads, int pairs) {
  const Cache cache(slots, bits);
  const UnpackedCache unpacked(cache, bits);
  const std::size_t rounds = std::max<std::size_t>(1, (std::size_t{1} << 23) / slots);
  const auto query = [&](std::size_t round, std::size_t head) {
    return mix(combine({round, head})) >> (64 - bits);
  };
  const auto scan = [&] {
    std::vector<std::uint64_t> queries(heads);
    for (std::size_t round = 0; round < rounds; ++round) {
      for (std::size_t head = 0; head < heads; ++head) queries[head] = query(round, head);
      used += policy::farthest(cache.codes, cache.positions, {queries}, cache.choosable(), policy::Tie::slot);
    }
  };
  const auto add_up = [&] {
    for (std::size_t round = 0; round < rounds; ++round) {
      std::uint64_t sum = round;
      for (const std::uint64_t code : cache.codes) sum += code;
      used += sum;
      asm volatile("" ::: "memory");  // read again next round
    }
  };
  const std::string size = std::to_string(slots) + " slots (" + std::to_string(slots * 8 >> 10) + " KiB), " +
                           std::to_string(bits) + " bits, " + std::to_string(heads) +
                           (heads == 1 ? " query: " : " queries: ");
  const bench::Paired p = bench::paired(scan, add_up, pairs);
  bench::report((size + "scan / adding up the codes").c_str(), p);
  std::printf("  %.3f ns per slot, %.2f us per decision\n",
              p.candidate_s * 1e9 / static_cast<double>(rounds * slots),
              p.candidate_s * 1e6 / static_cast<double>(rounds));
  if (heads > 1) return;
  const auto byte_per_bit = [&] {
    for (std::size_t round = 0; round < std::max<std::size_t>(rounds / 16, 1); ++round)
      used += unpacked.farthest(cache.positions, query(round, 0), cache.choosable());
  };
  const auto few_scans = [&] {
    for (std::size_t round = 0; round < std::max<std::size_t>(rounds / 16, 1); ++round) {
      const std::uint64_t one = query(round, 0);
      used +=
          policy::farthest(cache.codes, cache.positions, {{&one, 1}}, cache.choosable(), policy::Tie::slot);
    }
  };
  for (std::size_t round = 0; round < 3; ++round) {
    const std::uint64_t one = query(round, 0);
    if (unpacked.farthest(cache.positions, one, cache.choosable()) !=
        policy::farthest(cache.codes, cache.positions, {{&one, 1}}, cache.choosable(), policy::Tie::slot)) {
      std::puts("not the same slot");
      std::exit(1);
    }
  }
  bench::report((size + "byte per bit / scan").c_str(), bench::paired(byte_per_bit, few_scans, pairs));
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 7;
  for (const std::size_t slots : {512U, 2048U, 65536U, 4194304U, 33554432U}) compare(slots, 16, 1, pairs);
  compare(2048, 64, 1, pairs);
  compare(2048, 16, 4, pairs);
  if (used == 1) std::puts("");
  return 0;
}
