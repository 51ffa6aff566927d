#include "policies/api/score_policy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

constexpr double kMostTokens = 1 << 30;

}  // namespace

ParamSpec sinks_param(std::size_t fallback) {
  return {.name = "sinks",
          .type = ParamType::count,
          .fallback = std::to_string(fallback),
          .min = 0,
          .max = kMostTokens,
          .unit = "tokens",
          .help = "first positions of the sequence, never dropped"};
}

ParamSpec window_param(std::size_t fallback, std::size_t least) {
  return {.name = "window",
          .type = ParamType::count,
          .fallback = std::to_string(fallback),
          .min = static_cast<double>(least),
          .max = kMostTokens,
          .unit = "tokens",
          .help = "last positions, never dropped while among the last"};
}

ParamSpec unit_param(const char* fallback) {
  return {.name = "unit",
          .type = ParamType::choice,
          .fallback = fallback,
          .choices = {"lane", "layer"},
          .help = "what has its own kept set: a KV head, or a layer whose heads share one"};
}

ParamSpec tie_param() {
  return {.name = "tie",
          .type = ParamType::choice,
          .fallback = "oldest",
          .choices = {"oldest", "newest"},
          .help = "which of two equal scores is dropped first"};
}

bool unit_is_layer(const Params& params) {
  return params.word("unit") == "layer";
}

std::size_t protection_floor(const Params& params) {
  return Protection::of(params).floor();
}

Tie tie_of(const Params& params) {
  return params.word("tie") == "oldest" ? Tie::oldest : Tie::newest;
}

void ScoredEviction::finish_prompt(const Prompt& prompt) {
  scores_ = score(prompt);
  if (scores_.size() != prompt.length())
    bug("a policy scored another number of positions than the prompt has");
  const auto nan = std::find_if(scores_.begin(), scores_.end(), [](double s) { return std::isnan(s); });
  if (nan != scores_.end())
    input_error("the score of position " + std::to_string(nan - scores_.begin()) + " is not a number",
                "layer " + std::to_string(unit_.layer) + ", KV head " + std::to_string(unit_.first_kv_head),
                "The keys, values or attention of the run hold values that are not finite.");
  order_.resize(scores_.size());
  std::iota(order_.begin(), order_.end(), 0U);
  std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (scores_[a] != scores_[b]) return scores_[a] > scores_[b];
    return tie_ == Tie::oldest ? a > b : a < b;
  });
  rank_.resize(order_.size());
  for (std::uint32_t rank = 0; rank < order_.size(); ++rank) rank_[order_[rank]] = rank;
}

void ScoredEviction::compress(std::size_t budget, std::span<Position> keep) const {
  const Protection wanted = protection(budget);
  const std::size_t n = scores_.size(), sinks = std::min(wanted.sinks, n);
  const std::size_t window_from = n - std::min(wanted.window, n - sinks);
  const auto is_protected = [&](std::size_t position) { return position < sinks || position >= window_from; };
  const std::size_t n_protected = sinks + (n - window_from);
  if (keep.size() < n_protected) bug("budget is below the policy's floor");

  std::size_t cut = 0;  // unprotected positions ranked before it are kept
  for (std::size_t left = keep.size() - n_protected; left > 0; ++cut)
    if (!is_protected(order_[cut])) --left;
  std::size_t filled = 0;
  for (std::size_t position = 0; position < n; ++position)
    if (is_protected(position) || rank_[position] < cut) keep[filled++] = static_cast<Position>(position);
}

std::vector<double> ScoredEviction::scores_of(std::span<const Position> positions) const {
  std::vector<double> out(positions.size());
  std::transform(positions.begin(), positions.end(), out.begin(),
                 [&](Position p) { return scores_[static_cast<std::size_t>(p)]; });
  return out;
}

std::size_t ScoredDecoder::evict(const Arrival& arrival) {
  const auto first = static_cast<std::int64_t>(protection_.sinks);
  const auto last = arrival.position - static_cast<std::int64_t>(protection_.window);
  const std::size_t n = arrival.slots.size();
  std::size_t victim = n;
  double lowest = std::numeric_limits<double>::infinity();
  for (std::size_t slot = 0; slot < n; ++slot) {
    if (scores_[slot] > lowest) continue;  // nearly always: this test alone is what the loop costs
    const Position position = arrival.slots[slot];
    if (position < first || position > last) continue;
    const bool tied = victim < n && scores_[slot] == lowest;
    if (tied && (position < arrival.slots[victim]) != (tie_ == Tie::oldest)) continue;
    victim = slot;
    lowest = scores_[slot];
  }
  if (victim == n) bug("every slot is protected: the budget is below the policy's floor");
  return victim;
}

std::span<double> ScoredDecoder::admit(const Step& step, double own) {
  scores_.resize(step.slots.size());
  scores_[step.own_slot] = own;
  return scores_;
}

}  // namespace kvsim::policy
