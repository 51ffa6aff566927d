#pragma once
/// Which prompt tokens' queries a trace stores; those of generated tokens always are.
#include <cstdint>
#include <string>
#include <vector>

namespace kvsim::capture {

struct QueryChoice {
  bool all = true;
  std::uint64_t window = 0;  ///< else the last so many,
  std::uint64_t sample = 0;  ///< and so many of the others
};

/// "all", "window:W", "sample:K" or "window:W,sample:K". Throws Error(usage).
QueryChoice parse_query_choice(const std::string& text, const std::string& option);
std::string query_choice_text(const QueryChoice& choice);

/// Their positions, ascending. The sample is stratified: the positions before the window are cut into K
/// stretches that differ by a position at most, and one is drawn uniformly from each (keyed by `seed` and the
/// stretch), so that the sample is spread evenly and the mean over it, weighted by its stretches' lengths, is
/// an unbiased estimate of the mean over all.
std::vector<std::uint64_t> chosen_queries(const QueryChoice& choice, std::uint64_t prompt,
                                          std::uint64_t seed);

}  // namespace kvsim::capture
