#pragma once
/// Paired timing: a candidate and its baseline take turns in one process, so that other load on the machine
/// affects both; the result is the ratio of a pair, its median and its range.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <vector>

namespace kvsim::bench {

inline double seconds(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Of the process, which other processes do not add to.
inline double processor_seconds(const auto& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

struct Paired {
  double ratio, low, high;         ///< candidate / baseline: median, least, most over the pairs
  double candidate_s, baseline_s;  ///< medians
};

/// Runs one warm-up each, then `pairs` pairs in alternating order; `timed` says how long one took.
inline Paired paired_by(const auto& timed, const auto& candidate, const auto& baseline, int pairs) {
  candidate();
  baseline();
  std::vector<double> ratios, a, b;
  for (int i = 0; i < pairs; ++i) {
    double first = 0, second = 0;
    if (i % 2 == 0) {
      first = timed(candidate);
      second = timed(baseline);
    } else {
      second = timed(baseline);
      first = timed(candidate);
    }
    ratios.push_back(first / second);
    a.push_back(first);
    b.push_back(second);
  }
  const auto median = [](std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
  };
  return {median(ratios), *std::min_element(ratios.begin(), ratios.end()),
          *std::max_element(ratios.begin(), ratios.end()), median(a), median(b)};
}

inline Paired paired(const auto& candidate, const auto& baseline, int pairs = 7) {
  return paired_by([](const auto& work) { return seconds(work); }, candidate, baseline, pairs);
}

inline void report(const char* what, const Paired& p) {
  std::printf("%-64s %6.2fx  (%.2f .. %.2f)   %8.1f ms against %8.1f ms\n", what, p.ratio, p.low, p.high,
              p.candidate_s * 1e3, p.baseline_s * 1e3);
  std::fflush(stdout);
}

}  // namespace kvsim::bench
