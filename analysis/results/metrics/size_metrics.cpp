#include <algorithm>
#include <cmath>

#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
namespace {

Value evicted_tokens(const Measured& of) {
  return mean(of, &sim::LaneOutcome::whole_at_end) - mean(of, &sim::LaneOutcome::held_at_end);
}

/// Whole bytes: tokens as the trace stores them, or what a representation takes.
std::uint64_t bytes_of(const Measured& of, std::uint64_t sim::LaneOutcome::*tokens,
                       double sim::StoredOutcome::*bits) {
  std::uint64_t exact = 0;
  double stored = 0;
  for (const sim::LaneOutcome& lane : of.lanes)
    if (lane.stored)
      stored += (*lane.stored).*bits;
    else
      exact += lane.*tokens;
  // Parts of a unit's bits add up to a whole number, but for their rounding.
  return exact * of.outcome.token_bytes + static_cast<std::uint64_t>(std::ceil(std::round(stored) / 8));
}

Value held_bytes(const Measured& of) {
  return bytes_of(of, &sim::LaneOutcome::held_at_end, &sim::StoredOutcome::held_bits);
}

Value stored_bits(const Measured& of) {
  double numbers = 0, bits = 0;
  for (const sim::LaneOutcome& lane : of.lanes) {
    const double of_lane = count(lane.held_at_end) * count(of.outcome.token_numbers);
    numbers += of_lane;
    bits += lane.stored ? lane.stored->held_bits
                        : of_lane * 8 * count(of.outcome.token_bytes) / count(of.outcome.token_numbers);
  }
  return ratio(bits, numbers);
}

Value kept_bytes(const Measured& of) {
  return bytes_of(of, &sim::LaneOutcome::kept_tokens, &sim::StoredOutcome::kept_bits);
}

/// Lanes whose codec does not say make it undefined.
Value sent_bytes(const Measured& of) {
  double bits = 0;
  for (const sim::LaneOutcome& lane : of.lanes) {
    if (!lane.stored || !lane.stored->sent_bits) return {};
    bits += *lane.stored->sent_bits;
  }
  return static_cast<std::uint64_t>(std::ceil(std::round(bits) / 8));
}

/// A lane that never evicts is given the sequence; it spends its prompt.
Value allocated_tokens(const Measured& of) {
  return mean(of,
              [&](const sim::LaneOutcome& lane) { return std::min(lane.budget_tokens, of.cell.most_given); });
}

}  // namespace

std::vector<Metric> size_metrics() {
  return {
      {.key = "kept_tokens",
       .unit = "tokens per lane",
       .meaning = "positions held after the prompt (scope step: at the step), mean over lanes",
       .label = "tokens held after the prompt",
       .measure = mean_of<&sim::LaneOutcome::kept_tokens>,
       .measure_step = mean_at_step<&sim::StepOutcome::held>,
       .console = {.heading = "kept tokens", .show = Console::Show::tokens}},
      {.key = "held_tokens",
       .unit = "tokens per lane",
       .meaning = "positions held at the last step, mean over lanes: what a policy that lets generated "
                  "tokens stay comes to",
       .label = "tokens held at the end",
       .measure = mean_of<&sim::LaneOutcome::held_at_end>,
       .console = {.heading = "held tokens", .show = Console::Show::tokens, .unlike = "kept_tokens"}},
      {.key = "evicted_tokens",
       .unit = "tokens per lane",
       .meaning = "positions that the full cache holds at the last step and the lane does not, mean over "
                  "lanes; 0: the policy never evicted",
       .label = "tokens evicted",
       .measure = evicted_tokens},
      {.key = "kept_bytes",
       .unit = "bytes",
       .meaning = "what their keys and values take as they are stored, scales and windows included, over the "
                  "scope's lanes",
       .label = "bytes held after the prompt",
       .measure = kept_bytes,
       .whole = Whole::all_lanes,
       .console = {.heading = "kept size", .show = Console::Show::bytes}},
      {.key = "held_bytes",
       .unit = "bytes",
       .meaning = "the same at the last step",
       .label = "bytes held at the end",
       .measure = held_bytes,
       .whole = Whole::all_lanes},
      {.key = "stored_bits",
       .unit = "bits per number",
       .meaning = "what a key's or a value's number takes at the last step, scales and windows included",
       .formula = "bits of the ledger (codes, scales, outliers, indices, windows, tables of the sequence) "
                  "/ numbers held",
       .label = "bits per stored number",
       .measure = stored_bits,
       .whole = Whole::all_lanes,
       .console = {.heading = "bits", .only_with = "logit_rmse"}},
      {.key = "sent_bytes",
       .unit = "bytes",
       .meaning =
           "what sending what is kept of the prompt takes with the entropy code of its representation, "
           "over the scope's lanes; null where that has none",
       .formula = "what an arithmetic coder needs: per channel of a lane, for keys and values apart, sum "
                  "over symbols s of n(s) log2(N / n(s)) bits, by runs of 256 tokens, each rounded up to "
                  "bytes behind a length of 4; and scales, and tables of n where they are the prompt's "
                  "own",
       .label = "bytes sent",
       .measure = sent_bytes,
       .whole = Whole::all_lanes,
       .console = {.heading = "sent size", .show = Console::Show::bytes, .only_with = "sent_bytes"}},
      {.key = "allotted_tokens",
       .unit = "tokens per lane",
       .meaning = "what the allocation gave out, mean over lanes; budget_tokens unless a published formula "
                  "spends another total",
       .measure = allocated_tokens},
  };
}

std::vector<Metric> serving_metrics() {
  return {
      {.key = "cache_bytes",
       .unit = "bytes",
       .meaning = "cache after the last step in fp16, the policy's own data included (kvsim cost)",
       .price = [](const cost::Estimate& estimate) -> Value { return estimate.at_end.cache(); },
       .console = {.heading = "cache at end", .show = Console::Show::bytes}},
      {.key = "peak_bytes",
       .unit = "bytes",
       .meaning = "most that is needed at once, weights and activations included",
       .price = [](const cost::Estimate& estimate) -> Value { return estimate.peak(); }},
      {.key = "ttft_seconds",
       .unit = "s",
       .meaning = "modelled time to the first token, the policy's work included",
       .price = [](const cost::Estimate& estimate) -> Value { return estimate.time.first_token; },
       .console = {.heading = "TTFT ms", .show = Console::Show::milliseconds}},
      {.key = "tpot_seconds",
       .unit = "s",
       .meaning = "modelled time per output token after the first, mean",
       .price = [](const cost::Estimate& estimate) -> Value { return estimate.time.per_token; },
       .console = {.heading = "TPOT ms", .show = Console::Show::milliseconds}},
  };
}

}  // namespace kvsim::analysis
