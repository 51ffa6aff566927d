#pragma once
/// Turns a score ("higher is kept") into an eviction policy. A subclass says what the score of a prompt
/// position is and, if it manages generated tokens too, how a step changes the scores of what is resident.
///
/// Protected positions are kept whatever their score: the first `sinks` of the sequence and the last
/// `window`. While decoding, the token that arrives belongs to the window and pushes its oldest member out of
/// it, so a unit with budget = sinks + window (window >= 1) always has exactly one slot to give.
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

// Parameters that policies share, so that one name means one thing everywhere.
ParamSpec sinks_param(std::size_t fallback);
ParamSpec window_param(std::size_t fallback, std::size_t least = 0);
ParamSpec unit_param(const char* fallback);
ParamSpec tie_param();
bool unit_is_layer(const Params& params);

struct Protection {
  std::size_t sinks = 0, window = 0;

  /// Of the parameters `sinks` and `window`.
  static Protection of(const Params& params) { return {params.count("sinks"), params.count("window")}; }
  /// Least budget that leaves room for the token being computed.
  std::size_t floor() const { return sinks + (window > 0 ? window : 1); }
};
/// PolicySpec::floor of a policy with both parameters.
std::size_t protection_floor(const Params& params);

/// Which of two equal scores is dropped first. Positions are distinct, so every order is total.
enum class Tie { oldest, newest };
Tie tie_of(const Params& params);

/// Ranks the prompt once; every budget takes a prefix of that order.
class ScoredEviction : public Eviction {
 public:
  void finish_prompt(const Prompt& prompt) final;
  void compress(std::size_t budget, std::span<Position> keep) const final;

 protected:
  ScoredEviction(const Unit& unit, Protection protection, Tie tie)
      : unit_(unit), protection_(protection), tie_(tie) {}

  /// Score of every prompt position; those the protection covers may hold anything but NaN.
  virtual std::vector<double> score(const Prompt& prompt) = 0;
  /// What is protected under a budget; the default does not depend on it.
  virtual Protection protection(std::size_t /*budget*/) const { return protection_; }

  Tie tie() const { return tie_; }
  /// Scores of prompt positions, as a decoder starts with them.
  std::vector<double> scores_of(std::span<const Position> positions) const;

 private:
  Unit unit_;
  Protection protection_;
  Tie tie_;
  std::vector<double> scores_;
  std::vector<std::uint32_t> order_, rank_;  // best first, and its inverse
};

/// One score per slot; drops the lowest that is not protected.
class ScoredDecoder : public Decoder {
 public:
  /// `scores`: of the slots the prompt left.
  ScoredDecoder(Protection protection, Tie tie, std::vector<double> scores)
      : protection_(protection), tie_(tie), scores_(std::move(scores)) {}

  std::size_t evict(const Arrival& arrival) override;

 protected:
  /// To be called first in observe(): gives the slot of the step's own token the score `own`; returns all
  /// scores.
  std::span<double> admit(const Step& step, double own);
  std::span<double> scores() { return scores_; }

 private:
  Protection protection_;
  Tie tie_;
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

}  // namespace kvsim::policy
