#pragma once
/// Seconds: a roofline of operations with calibrated ceilings.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "policies/api/cost.hpp"
#include "sim/cost/holding.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"

namespace kvsim::cost {

enum class OpClass { linear, attention, elementwise, head, policy, communication };
inline constexpr std::size_t kOpClasses = 6;
const char* op_name(OpClass op);

/// What limits a class of operations: the largest of its three times.
enum class Bound { compute, memory, overhead };
const char* bound_name(Bound bound);

/// One class of operations, over a pass.
struct OpTime {
  double seconds = 0;
  double flops = 0, bytes = 0;
  double compute = 0, memory = 0, overhead = 0;  ///< seconds that each limit alone would take

  Bound bound() const;
};

/// What a link carries to the device in a pass.
struct LinkTime {
  double bytes = 0, seconds = 0;  ///< seconds whether something waits for them or not
};

/// A prefill or a decode step.
struct PassTime {
  std::array<OpTime, kOpClasses> ops{};
  double choosing = 0;  ///< the part of attention's seconds that reads a selection's index, by its bytes
  PerTier<LinkTime> links{};
  double loading =
      0;  ///< seconds that loads take; both links carry what comes from the SSD, at the same time
  double transfer = 0;  ///< seconds that layers wait for the links, where something is offloaded
  /// Bytes of the tiers that are read, and of these what is in the device's buffer and crosses no link.
  double asked = 0, found = 0;
  double host = 0;  ///< seconds by which the host's floor exceeds the rest

  OpTime& operator[](OpClass op) { return ops[static_cast<std::size_t>(op)]; }
  const OpTime& operator[](OpClass op) const { return ops[static_cast<std::size_t>(op)]; }
  double seconds() const;
  /// The share of `loading` that hides behind computing; none where nothing is loaded.
  std::optional<double> hidden() const;
  /// found / asked; none where nothing is asked for.
  std::optional<double> hit_rate() const;
};

// Each adds times * the second to sum, field by field.
void add(PerTier<LinkTime>& sum, const PerTier<LinkTime>& links, double times);
void add(OpTime& sum, const OpTime& op, double times);
void add(PassTime& sum, const PassTime& pass, double times);

/// Returns the time of one operation under the ceilings, without launch: the p-norm of both times.
double roofline(double compute_seconds, double memory_seconds, double norm);

/// Returns the time of the whole prompt of every sequence of the batch, in chunks, including compression by
/// the policy.
PassTime prefill_time(const Model& model, const Machine& machine, const Serving& serving,
                      const Holding& holding, const policy::Cost& cost);
/// Returns the time of the decode step that takes generated token number `step` (from 1) and attends to it
/// and to the tokens held then. The prefill generates token 1, so a request of g tokens has g - 1 such steps.
PassTime step_time(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                   const policy::Cost& cost, std::uint64_t step);

/// Returns the time of one forward pass of every sequence of the batch without a policy, for comparison with
/// the passes recorded in a trace: `tokens` new tokens attend to `past` tokens held in every lane and to
/// themselves; one new token is a decode step. `logits`: whether the pass ends with logits.
PassTime pass_time(const Model& model, const Machine& machine, const Serving& serving, std::uint64_t tokens,
                   std::uint64_t past, bool logits);

/// Returns the time of one step of every sequence of the batch that verifies drafted tokens: `tokens` rows
/// attend to `past` tokens held in every lane and to themselves, by a kernel of decoding, which reads the
/// cache once. The pass ends with the logits of all of them.
PassTime verification_time(const Model& model, const Machine& machine, const Serving& serving,
                           std::uint64_t tokens, std::uint64_t past);

/// The same where each lane attends to what it holds at `step` of `holding`, after that step's token; rows of
/// a selection read what a single one does. The policy's own work counts once.
PassTime verification_time(const Model& model, const Machine& machine, const Serving& serving,
                           const Holding& holding, const policy::Cost& cost, std::uint64_t tokens,
                           std::uint64_t step);

/// A request of a full batch.
struct Latency {
  PassTime prefill{};
  PassTime first_step{}, mean_step{},
      last_step{};               ///< mean over the generated tokens but the first, which the prefill gives
  double first_token = 0;        ///< TTFT, s
  double per_token = 0;          ///< TPOT, s: mean over the other generated tokens
  double request = 0;            ///< s from start to last token
  double tokens_per_second = 0;  ///< generated by the whole batch over the request
};
Latency latency(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                const policy::Cost& cost);

// Sums the times of many decode steps from few of them: between the steps at which a lane reaches its limit,
// a step's time is nearly a quadratic of its number.

/// Returns pass(first) + ... + pass(last). Between neighbours of `breaks` (any order, any values) each piece
/// is summed as the quadratic through three of its steps; a piece where two more steps differ from it by more
/// than a thousandth of a percent is halved, and short pieces are added up step by step.
PassTime sum_steps(std::uint64_t first, std::uint64_t last, std::vector<std::uint64_t> breaks,
                   const std::function<PassTime(std::uint64_t)>& pass);

}  // namespace kvsim::cost
