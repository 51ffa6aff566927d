#pragma once
/// What the costs of many policies are made of: scores of 4 bytes, a table of positions, sorting a prompt,
/// looking for the lowest. Counts are of a straightforward implementation: one kernel per pass, state read
/// once per step.
#include "policies/api/cost.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

inline constexpr std::uint64_t kScoreBytes = 4;     ///< float
inline constexpr std::uint64_t kPositionBytes = 4;  ///< int32
inline constexpr std::uint64_t kNumberBytes = 4;    ///< a lane's or a layer's number of tokens

inline double real(std::size_t count) {
  return static_cast<double>(count);
}

/// Rounded up. Throws Error(usage) when it does not fit 64 bits.
std::uint64_t whole_bytes(double bytes);

/// The kept sets of a layer: one per KV head, or one that its lanes share.
struct Sets {
  bool shared = false;
  double count = 1;

  /// So many bytes per slot of each set.
  Metadata per_slot(std::uint64_t bytes) const;
};
/// By the parameter `unit`, where it is declared.
Sets sets_of(const Params& params, const CostShape& shape);

/// One kernel that does `ops` for every component of the keys of `tokens` tokens.
Work over_keys(const CostShape& shape, std::size_t tokens, double ops);
Work over_values(const CostShape& shape, std::size_t tokens, double ops);
/// The products of the keys of `tokens` tokens, or of `heads` queries, with `columns` vectors.
Work projected_keys(const CostShape& shape, std::size_t tokens, std::size_t columns);
Work projected_queries(const CostShape& shape, std::size_t heads, std::size_t columns);
/// Adding up `rows` attention rows of every query head, each as long as what it sees.
Work prompt_sums(const CostShape& shape, std::size_t rows);
/// How many scores that is, over all query heads.
double seen(const CostShape& shape, std::size_t rows);
/// Smoothing sums over the prompt, per query head.
Work pooling(const CostShape& shape, std::size_t kernel);
/// Sorting the prompt's scores of every set.
Work sorted(const CostShape& shape, const Sets& sets);
/// Reading and writing the keys and values of `tokens` per lane.
Work moved(const CostShape& shape, std::size_t tokens);

/// What a rule spends on its scores; the rest follows from the parameters that policies share.
struct Scoring {
  std::uint64_t state = kScoreBytes;  ///< bytes per slot and set that decoding needs
  std::uint64_t unread = 0;           ///< of those, what the search for the lowest does not read
  std::size_t prompt_rows = 0;
  bool decode_rows = false;
  std::uint64_t scratch = 0;  ///< beside one score per prompt position and set
  Work prompt{};              ///< the prompt's scores
  Work token{};               ///< per token that joins: its own state, which depends on no other
  Work slot{};                ///< per generated token and token resident per lane: changing state
  double passes = 1;    ///< kernels over the slots per generated token, the search for the lowest the last
  bool decodes = true;  ///< beside the parameter `decode`, where it is declared
};
/// A policy that keeps the highest scores. Adds: sorting and moving what a prompt longer than the budget
/// leaves; while decoding, the search for the lowest, and positions per slot where a window, a block or the
/// tie asks for them; and with prompt=stream, a step for every token of the prompt instead of its ranking.
Cost scored_cost(const Params& params, const CostShape& shape, const Scoring& scoring);

/// Keeping the first and the newest: a ring of slots, and moving what stays of a prompt.
Cost recency_cost(const CostShape& shape);
/// A policy that compresses the prompt alone, by scores that take `scores`.
Scoring prompt_scoring(std::size_t rows, const Work& scores);
/// The same by sums over the last `rows` prompt rows, smoothed by the pool of that name. The rows lie in a
/// buffer; if they are all, sums do.
Scoring window_scoring(const CostShape& shape, std::size_t rows, const std::string& pool);
/// Such sums for an allocation.
Cost window_cost(const CostShape& shape, std::size_t rows, const std::string& pool);
/// Of a slot that must know its position: when a window, blocks or the tie ask for it. Else 0.
std::uint64_t position_bytes(const Params& params);
/// The policy asked lane by lane, whatever its own unit.
Part per_lane(Part base);
/// The same policy when it only compresses the prompt.
Cost prompt_only(Cost cost);

/// Attention received, as accumulated_attention.hpp adds it up: one sum per slot, changed by every row.
struct Accumulation;
Scoring accumulating(const Params& params, const CostShape& shape, const Accumulation& rule);

}  // namespace kvsim::policy
