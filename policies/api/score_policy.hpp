#pragma once
/// Turns a score ("higher is kept") into an eviction policy. A subclass defines the score of a prompt
/// position and, if it manages generated tokens too, how a step changes the scores of the resident tokens.
/// Everything else is the same for all of them and decided here: which positions are protected, in which
/// blocks tokens are evicted, which of equal scores is evicted first, and whether the prompt is ranked at
/// once or streamed.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

// Chooses which positions of a scored prompt a budget keeps.

/// Which of two equal scores is dropped first. Positions and slots are distinct, so every order is total.
/// `slot` drops the lower slot, as an argmin over the cache does (in a prompt: the older position).
enum class Tie { oldest, newest, slot };

/// Blocks of `granularity` positions of the text, as far as they lie in the rows of a prompt.
struct PromptBlocks {
  std::size_t length = 0, granularity = 1;
  std::size_t first = 0;  ///< position of row 0, which may lie within a block

  std::size_t count() const { return length == 0 ? 0 : of(length - 1) + 1; }
  std::size_t of(std::size_t row) const { return (first % granularity + row) / granularity; }
  std::size_t begin(std::size_t block) const {
    return block == 0 ? 0 : block * granularity - first % granularity;
  }
  std::size_t end(std::size_t block) const { return std::min(begin(block + 1), length); }
  std::size_t size(std::size_t block) const { return end(block) - begin(block); }
};

/// A prompt cut into blocks, ordered by the mean score of each block, best first. A block with a protected
/// token is protected.
class BlockOrder {
 public:
  BlockOrder() = default;
  /// `scores`: one per row of the prompt, higher is kept, no NaN. `first`: Prompt::first().
  BlockOrder(std::span<const double> scores, std::size_t granularity, Tie tie, std::size_t first = 0);

  /// Returns the protected blocks and then the best others, until one does not fit any more, as ascending
  /// rows. Throws Error(bug) if the protected blocks alone do not fit.
  std::vector<Position> best(std::size_t budget, const Protection& protection) const {
    return best(budget, protected_blocks(protection));
  }
  /// The same for blocks that are already marked: those with a non-zero `stays` are kept in any case.
  std::vector<Position> best(std::size_t budget, std::vector<char> stays) const;
  /// Returns how many tokens the protected blocks hold.
  std::size_t protected_tokens(const Protection& protection) const;
  /// Returns, for each block, whether it is protected.
  std::vector<char> protected_blocks(const Protection& protection) const;

 private:
  std::size_t tokens(const std::vector<char>& blocks) const;

  PromptBlocks blocks_;
  std::vector<std::uint32_t> order_;
};

// Parameters that policies share, so that one name means one thing everywhere. A policy declares those it
// offers; KeepRule::of reads the declared ones.
ParamSpec sinks_param(std::size_t fallback);
ParamSpec window_param(std::size_t fallback, std::size_t least = 0);
ParamSpec rows_param(std::size_t fallback);  ///< how many of the last prompt rows are read
ParamSpec unit_param(const char* fallback);
ParamSpec tie_param(const char* fallback = "oldest");
ParamSpec ranked_tie_param();  ///< for policies that never decode, where slots and positions are the same
ParamSpec granularity_param(std::size_t fallback = 1);
ParamSpec phase_param(const char* fallback = "pre");
ParamSpec prompt_param(const char* fallback = "rank");
ParamSpec group_param(const char* fallback = "mean");
ParamSpec feedback_param(const char* fallback = "renorm");
ParamSpec decode_param(const char* fallback = "true");
ParamSpec drop_param(const char* fallback = "0");
/// Returns `own`, then `shared`.
std::vector<ParamSpec> with(std::vector<ParamSpec> own, const std::vector<ParamSpec>& shared);

/// How query heads that share a set are reduced to one score (a sum ranks as the mean does).
enum class Group { mean, max };

/// What decoding sees: attention of the compressed cache, or attention of the full cache on the resident
/// tokens.
enum class Feedback { renorm, raw };

/// All of a scored policy except its score.
struct KeepRule {
  Protection protection{};
  Tie tie = Tie::oldest;
  /// Tokens are kept and evicted in blocks of so many positions (1: single tokens; a chunk; a page of a paged
  /// cache), aligned at multiples of it, by the mean score of the block's resident tokens. A block with a
  /// protected token is protected. A block that does not fit any more ends the choice, so less than the
  /// budget may be kept.
  std::size_t granularity = 1;
  double recent = 0;    ///< share of the budget for the newest positions, beyond the window
  double drop = 0;      ///< share of the budget that is evicted at once when the cache is full (at least 1)
  bool post = false;    ///< the arriving token attends before another is evicted, so B + 1 are attended
  bool stream = false;  ///< the prompt arrives token by token

  /// Reads those shared parameters that are declared. A policy that wraps a `base` ranks as the base does,
  /// except for what it declares itself, and has at least the base's sinks.
  static KeepRule of(const Params& params);
  /// Returns the least budget that leaves room for the token being computed.
  std::size_t floor() const;
  /// Returns `protection` with a window longer by floor(recent * budget), as far as the sinks leave room.
  Protection protection_in(std::size_t budget) const;
};
/// Throws Error(usage) for decode=false with prompt=stream, which would never evict.
void check_decode(const Params& params);
Group group_of(const Params& params);
Feedback feedback_of(const Params& params);

/// Ranks the prompt once; every budget takes a prefix of that order. decoder() returns the state for the
/// decode phase of one budget over what start() keeps, which is nothing if the prompt is streamed.
class ScoredEviction : public Eviction {
 public:
  void finish_prompt(const Prompt& prompt) final;
  bool streams_prompt() const final { return rule_.stream; }
  Start start(std::size_t budget) const final;
  std::span<const double> scores() const final { return scores_; }
  Protection protection(std::size_t budget, std::size_t /*prompt*/) const override {
    return rule_.protection_in(budget);
  }

 protected:
  /// `recent`: that of the KeepRule, for policies with such a parameter.
  ScoredEviction(const Params& params, const CacheUnit& unit, double recent = 0)
      : unit_(unit), rule_(KeepRule::of(params)) {
    rule_.recent = recent;
  }

  /// Returns the score of every prompt position; scores of protected positions may be anything but NaN.
  virtual std::vector<double> score(const Prompt& prompt) = 0;
  const CacheUnit& unit() const { return unit_; }
  const KeepRule& rule() const { return rule_; }
  /// Returns the selection under a budget, for a ScoredDecoder.
  KeepRule selection(std::size_t budget) const;
  /// Returns the scores of prompt positions, with which a decoder starts.
  std::vector<double> scores_of(std::span<const Position> positions) const;

 private:
  CacheUnit unit_;
  KeepRule rule_;
  std::vector<double> scores_;
  BlockOrder order_;
};

/// Keeps one score per slot and evicts the slot with the lowest score that is not protected.
class ScoredDecoder : public Decoder {
 public:
  /// `scores`: of the slots kept from the prompt.
  ScoredDecoder(const KeepRule& selection, std::vector<double> scores)
      : selection_(selection), scores_(std::move(scores)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override;
  std::span<const double> scores() const final { return scores_; }
  /// Closes up per-slot state when several tokens are evicted (api/slots.hpp). An override must call this one
  /// too.
  void close_slots(std::span<const std::size_t> victims) override;

 protected:
  /// Must come first in observe(): gives the slot of the step's own token the score `own`; returns all
  /// scores.
  std::span<double> admit(const Step& step, double own);
  std::span<double> scores() { return scores_; }
  const KeepRule& selection() const { return selection_; }
  bool is_protected(const Arrival& arrival, std::int64_t position) const;

 private:
  std::size_t lowest(const Arrival& arrival) const;
  void lowest_of(std::size_t count, const Arrival& arrival, std::vector<std::size_t>& victims) const;
  void lowest_block(const Arrival& arrival, std::vector<std::size_t>& victims) const;

  KeepRule selection_;
  std::vector<double> scores_;
};

/// scores[slot] += weight * row[slot].
inline void add_scaled(std::span<const float> row, double weight, std::span<double> scores) {
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += weight * static_cast<double>(row[i]);
}

/// Returns the factor that turns query head `head`'s raw attention of a step into the row that a compressed
/// cache computes.
inline double renormalise(const Step& step, std::size_t head) {
  return step.mass[head] > 0 ? 1.0 / step.mass[head] : 0.0;
}

/// Adds the step's attention on each slot as `feedback` sees it, reduced over the query heads, times
/// `weight`, to `scores`.
void add_attention(const Step& step, Feedback feedback, Group group, double weight, std::span<double> scores);

}  // namespace kvsim::policy
