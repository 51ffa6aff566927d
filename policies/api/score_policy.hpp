#pragma once
/// Turns a score ("higher is kept") into an eviction policy. A subclass says what the score of a prompt
/// position is and, if it manages generated tokens too, how a step changes the scores of what is resident.
/// Who is protected, in which blocks tokens leave, who leaves first among equals, and whether the prompt is
/// ranked at once or streamed is the same for all of them and decided here.
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/block_order.hpp"
#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

// Parameters that policies share, so that one name means one thing everywhere. A policy declares those it
// offers; Selection::of reads those that are declared.
ParamSpec sinks_param(std::size_t fallback);
ParamSpec window_param(std::size_t fallback, std::size_t least = 0);
ParamSpec rows_param(std::size_t fallback);  ///< how many of the last prompt rows are looked at
ParamSpec unit_param(const char* fallback);
ParamSpec tie_param(const char* fallback = "oldest");
ParamSpec ranked_tie_param();  ///< for policies that never decode: slots and positions are one
ParamSpec granularity_param(std::size_t fallback = 1);
ParamSpec phase_param(const char* fallback = "pre");
ParamSpec prompt_param(const char* fallback = "rank");
ParamSpec group_param(const char* fallback = "mean");
ParamSpec feedback_param(const char* fallback = "renorm");
ParamSpec decode_param(const char* fallback = "true");
ParamSpec drop_param(const char* fallback = "0");
/// `own`, then `shared`.
std::vector<ParamSpec> with(std::vector<ParamSpec> own, const std::vector<ParamSpec>& shared);

bool unit_is_layer(const Params& params);

/// How query heads that share a set are reduced to one score (a sum ranks as the mean does).
enum class Group { mean, max };

/// What decoding sees: the compressed cache's own attention, or the full cache's on what is resident.
enum class Feedback { renorm, raw };

/// Everything about a scored policy but its score.
struct Selection {
  Protection protection{};
  Tie tie = Tie::oldest;
  /// Tokens stay and leave in blocks of so many positions (1: tokens; a chunk; a page of a paged cache),
  /// aligned at multiples of it, by the mean score of what is resident of the block. A block with a protected
  /// token is protected, and one that does not fit any more ends the choice: less than the budget may stay.
  std::size_t granularity = 1;
  double drop = 0;      ///< share of the budget that leaves at once when the cache is full, at least a token
  bool post = false;    ///< the arriving token attends before another leaves: B + 1 are attended
  bool stream = false;  ///< the prompt arrives token by token

  /// Of those shared parameters that are declared. A policy that wraps a `base` ranks as the base does, but
  /// for what it declares itself, and has at least the base's sinks.
  static Selection of(const Params& params);
  /// Least budget that leaves room for the token being computed.
  std::size_t floor() const;
};
/// PolicySpec::floor and PolicySpec::overshoot of a policy with shared parameters.
std::size_t selection_floor(const Params& params);
std::size_t selection_overshoot(const Params& params);
/// Throws Error(usage) for decode=false with prompt=stream, where nobody would leave.
void check_decode(const Params& params);
Group group_of(const Params& params);
Feedback feedback_of(const Params& params);

/// Ranks the prompt once; every budget takes a prefix of that order. decoder() is the state for the decode
/// phase of one budget over what start() keeps: nothing if the prompt is streamed.
class ScoredEviction : public Eviction {
 public:
  void finish_prompt(const Prompt& prompt) final;
  bool streams_prompt() const final { return selection_.stream; }
  Start start(std::size_t budget) const final;
  std::span<const double> scores() const final { return scores_; }
  /// The default does not depend on the budget.
  Protection protection(std::size_t /*budget*/, std::size_t /*prompt*/) const override {
    return selection_.protection;
  }

 protected:
  ScoredEviction(const CacheUnit& unit, const Selection& selection) : unit_(unit), selection_(selection) {}

  /// Score of every prompt position; those the protection covers may hold anything but NaN.
  virtual std::vector<double> score(const Prompt& prompt) = 0;
  const CacheUnit& unit() const { return unit_; }
  /// Selection under a budget, as a ScoredDecoder wants it.
  Selection selection(std::size_t budget) const;
  /// Scores of prompt positions, as a decoder starts with them.
  std::vector<double> scores_of(std::span<const Position> positions) const;

 private:
  CacheUnit unit_;
  Selection selection_;
  std::vector<double> scores_;
  BlockOrder order_;
};

/// One score per slot; drops the lowest that is not protected.
class ScoredDecoder : public Decoder {
 public:
  /// `scores`: of the slots the prompt left.
  ScoredDecoder(const Selection& selection, std::vector<double> scores)
      : selection_(selection), scores_(std::move(scores)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override;
  std::span<const double> scores() const final { return scores_; }
  /// Several tokens leave: per-slot state closes up (api/slots.hpp). Overriders call this one too.
  void close_slots(std::span<const std::size_t> victims) override;

 protected:
  /// To be called first in observe(): gives the slot of the step's own token the score `own`; returns all
  /// scores.
  std::span<double> admit(const Step& step, double own);
  std::span<double> scores() { return scores_; }
  const Selection& selection() const { return selection_; }
  bool is_protected(const Arrival& arrival, std::int64_t position) const;
  /// evict() as if the scores of `spared` slots were out of reach; for policies without granularity.
  void evict_sparing(const Arrival& arrival, std::span<const std::size_t> spared,
                     std::vector<std::size_t>& victims);

 private:
  std::size_t lowest(const Arrival& arrival) const;
  void lowest_of(std::size_t count, const Arrival& arrival, std::vector<std::size_t>& victims) const;
  void lowest_block(const Arrival& arrival, std::vector<std::size_t>& victims) const;

  Selection selection_;
  std::vector<double> scores_;
};

/// scores[slot] += weight * row[slot].
inline void add_scaled(std::span<const float> row, double weight, std::span<double> scores) {
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += weight * static_cast<double>(row[i]);
}

/// What turns query head `head`'s raw attention of a step into the row that a compressed cache computes.
inline double renormalise(const Step& step, std::size_t head) {
  return step.mass[head] > 0 ? 1.0 / step.mass[head] : 0.0;
}

/// The step's attention on each slot as `feedback` sees it, reduced over the query heads, times `weight`,
/// added to `scores`.
void add_attention(const Step& step, Feedback feedback, Group group, double weight, std::span<double> scores);

}  // namespace kvsim::policy
