// Compares KVCrush's grouping with the k-means that it replaces (arXiv 2503.00022, section IV-C), in time and
// counted operations: the same candidates, the same number of representatives, one decision.
//
//   bench_kvcrush [PAIRS]
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "policies/parts/index/fingerprints.hpp"
#include "policies/parts/index/k_means.hpp"
#include "sim/base/rng.hpp"
#include "tests/bench/paired.hpp"

using namespace kvsim;
using namespace kvsim::policy;

namespace {

/// A layer's candidates: every head's verdict on them, and their keys.
struct Candidates {
  std::size_t n, n_heads, dim;
  std::vector<std::vector<char>> verdicts;  ///< [head][candidate]
  std::vector<float> keys;                  ///< [candidate, head * dim]

  Candidates(std::size_t n_items, std::size_t heads, std::size_t head_dim)
      : n(n_items), n_heads(heads), dim(head_dim) {
    // Tokens of a topic are judged and encoded alike.
    constexpr std::size_t n_topics = 24;
    keys.resize(n * n_heads * dim);
    verdicts.assign(n_heads, std::vector<char>(n));
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t topic = mix(i / 8) % n_topics;
      for (std::size_t h = 0; h < n_heads; ++h) {
        const double liking = uniform01(combine({topic, h}));
        verdicts[h][i] = uniform01(combine({i, h, 1})) < 0.8 ? liking < 0.3 : liking >= 0.3;
        for (std::size_t d = 0; d < dim; ++d)
          keys[(i * n_heads + h) * dim + d] =
              static_cast<float>(normal(combine({topic, h, d})) + 0.5 * normal(combine({i, h, d})));
      }
    }
  }

  Fingerprints fingerprints() const {
    Fingerprints out(n, n_heads);
    for (std::size_t h = 0; h < n_heads; ++h)
      for (std::size_t i = 0; i < n; ++i)
        if (verdicts[h][i]) out.set(i, h);
    return out;
  }
};

std::vector<std::uint32_t> by_anchor(const Candidates& candidates, std::size_t count) {
  std::vector<std::uint32_t> items(candidates.n);
  std::iota(items.begin(), items.end(), 0U);
  const Fingerprints prints = candidates.fingerprints();
  const auto anchor = make_bits(candidates.n_heads, [](std::size_t bit) {
    return uniform01(combine({7, bit})) < 0.5;
  });
  return picked(prints.nearest_first(items, anchor), count, Pick::random, 7);
}

KMeans by_keys(const Candidates& candidates, std::size_t count) {
  const std::size_t width = candidates.n_heads * candidates.dim;
  return k_means({candidates.keys.data(), candidates.n, width, width}, count, 7);
}

KMeans by_bits(const Candidates& candidates, std::size_t count) {
  const Fingerprints prints = candidates.fingerprints();
  std::vector<float> points(candidates.n * candidates.n_heads);
  for (std::size_t i = 0; i < points.size(); ++i)
    points[i] = prints.get(i / candidates.n_heads, i % candidates.n_heads) ? 1.0F : 0.0F;
  return k_means({points.data(), candidates.n, candidates.n_heads, candidates.n_heads}, count, 7);
}

void compare(std::size_t n, std::size_t n_heads, std::size_t dim, std::size_t count, int pairs) {
  const Candidates candidates(n, n_heads, dim);
  std::size_t kept = 0;
  KMeans keys, bits;
  const auto anchor = [&] { kept = by_anchor(candidates, count).size(); };
  const std::string what = std::to_string(n) + " candidates, " + std::to_string(n_heads) + " x " +
                           std::to_string(dim) + ", " + std::to_string(count) + " stay: ";
  const bench::Paired against_bits = bench::paired([&] { bits = by_bits(candidates, count); }, anchor, pairs);
  bench::report((what + "k-means on bits").c_str(), against_bits);
  const bench::Paired against_keys = bench::paired([&] { keys = by_keys(candidates, count); }, anchor, pairs);
  bench::report((what + "k-means on keys").c_str(), against_keys);
  if (kept != count || keys.representatives.size() != count || bits.representatives.size() != count) {
    std::printf("not as many representatives\n");
    std::exit(1);
  }
  const auto comparisons = [&](const KMeans& run, std::size_t width) {
    return static_cast<double>(run.rounds) * static_cast<double>(n * count * width);
  };
  const auto once = static_cast<double>(n * n_heads);
  std::printf(
      "  bit comparisons %.3g; k-means, coordinates compared: on bits %.3g (%zu rounds), on keys %.3g "
      "(%zu rounds); anchor %.3f ms\n",
      once, comparisons(bits, n_heads), bits.rounds, comparisons(keys, n_heads * dim), keys.rounds,
      against_keys.baseline_s * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 5;
  std::printf("k-means' time over KVCrush's, fingerprints made in both\n");
  compare(512, 8, 64, 64, pairs);
  compare(2048, 8, 64, 128, pairs);
  compare(2048, 32, 128, 128, std::min(pairs, 3));
  compare(4096, 8, 128, 256, std::min(pairs, 3));
  return 0;
}
