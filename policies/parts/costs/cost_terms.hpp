#pragma once
/// Terms that the costs of many policies share: scores of 4 bytes, a table of positions, sorting a prompt,
/// finding the lowest score. Counts are those of a straightforward implementation: one kernel per pass, state
/// read once per step.
#include "policies/api/cost.hpp"
#include "policies/api/spec.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::policy {

inline constexpr std::uint64_t kScoreBytes = 4;     ///< float
inline constexpr std::uint64_t kPositionBytes = 4;  ///< int32
inline constexpr std::uint64_t kNumberBytes = 4;    ///< a lane's or a layer's number of tokens

/// Operations that rotating a number by its position takes: two products and a sum.
inline constexpr double kRotationOps = 3;

/// Rounds up to whole bytes. Throws Error(usage) when the number does not fit 64 bits.
std::uint64_t whole_bytes(double bytes);

/// The resident sets of a layer: one per KV head, or one that its lanes share.
struct Sets {
  bool shared = false;
  double count = 1;

  /// Returns metadata of `bytes` per slot of each set.
  Metadata per_slot(std::uint64_t bytes) const;
};
/// Returns the sets that the parameter `unit` asks for, where it is declared.
Sets sets_of(const Params& params, const CostShape& shape);

/// Returns the work of one kernel that does `ops` for every component of the keys of `tokens` tokens.
Work over_keys(const CostShape& shape, std::size_t tokens, double ops);
Work over_values(const CostShape& shape, std::size_t tokens, double ops);
/// Returns the work of the products and exponentials of `pairs` queries and keys, of which all are in the
/// processor already.
Work softmax_of(const CostShape& shape, double pairs);
/// Returns the work of multiplying the keys of `tokens` tokens, or of `heads` queries, with `columns`
/// vectors.
Work projected_keys(const CostShape& shape, std::size_t tokens, std::size_t columns);
Work projected_queries(const CostShape& shape, std::size_t heads, std::size_t columns);
/// Returns the work of adding up `rows` attention rows of every query head, each as long as what it sees.
Work prompt_sums(const CostShape& shape, std::size_t rows);
/// Returns the work of computing the last `rows` rows of attention among `tokens` tokens from queries and
/// keys.
Work rows_anew(const CostShape& shape, std::size_t tokens, std::size_t rows);
/// Returns how many attention scores these rows have, over all query heads.
double seen(const CostShape& shape, std::size_t rows);
/// Returns the work of smoothing sums over the prompt, per query head.
Work pooling(const CostShape& shape, std::size_t kernel);
/// Returns the work of sorting the prompt's scores of every set.
Work sorted(const CostShape& shape, const Sets& sets);
/// Returns the work of reading and writing the keys and values of `tokens` per lane.
Work moved(const CostShape& shape, std::size_t tokens);

/// What a rule spends on its scores; the remaining cost follows from the parameters that policies share.
struct Scoring {
  std::uint64_t state = kScoreBytes;  ///< bytes per slot and set that decoding needs
  std::uint64_t unread = 0;           ///< part of `state` that the search for the lowest score does not read
  std::size_t prompt_rows = 0;
  bool decode_rows = false;
  std::uint64_t scratch = 0;  ///< bytes beside one score per prompt position and set
  Work prompt{};              ///< the prompt's scores
  Work token{};         ///< per token that joins: computing its own state, which depends on no other token
  Work slot{};          ///< per generated token and token resident per lane: changing state
  double passes = 1;    ///< kernels over the slots per generated token; the last searches for the lowest
  bool decodes = true;  ///< combined with the parameter `decode`, where it is declared
};
/// Returns the cost of a policy that keeps the highest scores. Beside `scoring` it counts sorting a prompt
/// longer than the budget and moving what is kept of it; while decoding, the search for the lowest score, and
/// positions per slot where a window, blocks or the tie rule need them; and with prompt=stream, a step for
/// every token of the prompt instead of its ranking.
Cost scored_cost(const Params& params, const CostShape& shape, const Scoring& scoring);

/// Returns the cost of keeping the first and the newest tokens: a ring of slots, and moving what is kept of a
/// prompt.
Cost recency_cost(const CostShape& shape);
/// Returns the scoring of a policy that compresses only the prompt, by scores that cost `scores`.
Scoring prompt_scoring(std::size_t rows, const Work& scores);
/// The same for sums over the last `rows` prompt rows, smoothed by the pool of that name. The rows lie in a
/// buffer; if all rows count, only their sums do.
Scoring window_scoring(const CostShape& shape, std::size_t rows, const std::string& pool);
/// Returns the cost of such sums for an allocation.
Cost window_cost(const CostShape& shape, std::size_t rows, const std::string& pool);
/// Returns the bytes of a slot's position if a window, blocks or the tie rule need it, otherwise 0.
std::uint64_t position_bytes(const Params& params);
/// Returns the policy as it ranks single lanes, whatever its own unit.
Part per_lane(Part base);
/// Returns the cost of the same policy when it only compresses the prompt.
Cost prompt_only(Cost cost);

/// Returns the scoring of attention received as accumulated_attention.hpp adds it up: one sum per slot,
/// changed by every row.
struct Accumulation;
Scoring accumulating(const Params& params, const CostShape& shape, const Accumulation& rule);

/// Of allocations that spend a budget where it gains most: sorting every head's scores, merging as many
/// sorted lists, and one stored number per lane.
Cost gains_cost(const CostShape& shape, std::size_t lists);
/// Of keeping what a file marks: tokens are moved, at most all of them; the cost of making the file is
/// unknown here.
Cost cost_of_marked(const Params& params, const CostShape& shape);

// What norms of values after the output projection cost.

/// Multiplies every query head's values with its part of the output projection, of which only norms are
/// written.
inline Work projected_values(const CostShape& shape) {
  const double outputs = real(shape.query_heads) * real(shape.prompt) * real(shape.hidden);
  const double weights = real(shape.query_heads) * real(shape.value_dim) * real(shape.hidden);
  Work norms = over_values(shape, shape.prompt, 0);
  norms.flops = 2 * real(shape.value_dim) * outputs;
  norms.ops = 2 * outputs;
  norms.bytes += weights * real(shape.element_bytes);
  return norms;
}

}  // namespace kvsim::policy
