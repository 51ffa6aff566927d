#pragma once
/// Chooses the tokens whose queries and attention rows a trace stores.
#include <cstdint>
#include <string>
#include <vector>

namespace kvsim::capture {

/// The prompt tokens whose queries are stored. Queries of generated tokens always are.
struct QueryChoice {
  bool all = true;
  std::uint64_t window = 0;  ///< unless `all`: the last `window` prompt tokens
  std::uint64_t sample = 0;  ///< and `sample` of the others
};

/// "all", "window:W", "sample:K" or "window:W,sample:K". Throws Error(usage).
QueryChoice parse_query_choice(const std::string& text, const std::string& option);
std::string query_choice_text(const QueryChoice& choice);

/// Positions of the chosen queries, ascending. The sample is stratified: the positions before the window are
/// divided into K strata whose lengths differ by at most one, and one position is drawn uniformly from each
/// (keyed by `seed` and the stratum). The sample is thus spread evenly, and its mean, weighted by the lengths
/// of the strata, is an unbiased estimate of the mean over all positions.
std::vector<std::uint64_t> chosen_queries(const QueryChoice& choice, std::uint64_t prompt,
                                          std::uint64_t seed);

/// The tokens whose attention rows are stored: none; those of the last `window` prompt tokens and all
/// generated tokens; or all rows.
struct RowChoice {
  enum class Kind { none, window, all };
  Kind kind = Kind::none;
  std::uint64_t window = 0;
};

/// "none", "window:W" or "full". Throws Error(usage).
RowChoice parse_row_choice(const std::string& text, const std::string& option);
std::string row_choice_text(const RowChoice& choice);

/// First position whose row is stored; the rows of all later positions are stored too. The largest number if
/// no row is stored.
std::uint64_t first_row(const RowChoice& choice, std::uint64_t prompt);

}  // namespace kvsim::capture
