#include <algorithm>
#include <bit>

#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
namespace {

Value evidence_loss(const Measured& of) {
  if (of.outcome.evidence_tokens == 0) return {};
  return share(paid(of, &sim::LaneOutcome::evidence));
}

Value evidence_loss_at(const Measured& of, std::uint64_t step) {
  return share(paid(of, [&](const sim::LaneOutcome& lane) { return lane.each_step[step].evidence; }));
}

/// Mean over evidence tokens of `value`, a function of how many lanes hold the token at the last step.
template <class Get>
Value mean_over_tokens(const Measured& of, Get value) {
  const std::uint64_t tokens = of.outcome.evidence_tokens;
  if (tokens == 0 || of.lanes.front().steps == 0) return {};
  double total = 0;
  for (std::size_t token = 0; token < tokens; ++token)
    total += value(sum(of, [&](const sim::LaneOutcome& lane) { return lane.holds_evidence[token]; }));
  return total / count(tokens);
}

Value evidence_held(const Measured& of) {
  return mean_over_tokens(of, [&](double lanes) { return lanes / count(of.lanes.size()); });
}

Value evidence_nowhere(const Measured& of) {
  return mean_over_tokens(of, [](double lanes) { return lanes == 0 ? 1.0 : 0.0; });
}

/// Tokens that some layer still sees at the last step, and of these the ones that no lane holds.
struct Gone {
  std::uint64_t in_sight = 0, nowhere = 0;
};

/// `holds`: member of LaneOutcome, with a bit set per token held. `in_sight`: function of a lane.
template <class Holds, class InSight>
Gone gone_from(std::span<const sim::LaneOutcome> lanes, Holds holds, InSight in_sight) {
  Gone out;
  auto somewhere = lanes.front().*holds;
  for (const sim::LaneOutcome& lane : lanes) {
    for (std::size_t i = 0; i < somewhere.size(); ++i) somewhere[i] |= (lane.*holds)[i];
    out.in_sight = std::max(out.in_sight, in_sight(lane));
  }
  out.nowhere = out.in_sight;
  for (const auto bits : somewhere) out.nowhere -= static_cast<std::uint64_t>(std::popcount(bits));
  return out;
}

/// Share of the tokens in sight that are nowhere: of all lanes together, or of each layer's, summed over
/// layers.
template <class Holds, class InSight>
Value share_nowhere(const Measured& of, bool in_layer, Holds holds, InSight in_sight) {
  if (of.lanes.front().steps == 0) return {};
  const std::size_t all = of.lanes.size();
  const std::size_t together = in_layer ? std::min<std::size_t>(of.outcome.n_kv_heads, all) : all;
  Gone total;
  for (std::size_t lane = 0; lane < all; lane += together) {
    const Gone gone = gone_from(of.lanes.subspan(lane, together), holds, in_sight);
    total.in_sight += gone.in_sight;
    total.nowhere += gone.nowhere;
  }
  return ratio(count(total.nowhere), count(total.in_sight));
}

Value evidence_nowhere_in_layer(const Measured& of) {
  return share_nowhere(of, true, &sim::LaneOutcome::holds_evidence,
                       [](const sim::LaneOutcome& lane) { return lane.evidence_in_sight; });
}

template <bool in_layer>
Value prompt_nowhere(const Measured& of) {
  const std::uint64_t prompt = of.outcome.prompt, length = prompt + of.outcome.decode;
  return share_nowhere(of, in_layer, &sim::LaneOutcome::holds_prompt, [&](const sim::LaneOutcome& lane) {
    return prompt - std::min(prompt, length - lane.whole_at_end);
  });
}

}  // namespace

std::vector<Metric> evidence_metrics() {
  return {
      {.key = "evidence_loss",
       .unit = "share",
       .meaning = "of the attention that the measured steps pay to evidence tokens, the part on tokens no "
                  "longer held; null if the trace marks none",
       .formula = "sum of a_t(j) over evidence positions j <= t not in S_t / sum over all evidence "
                  "positions j <= t, both over measured steps and lanes",
       .label = "evidence loss",
       .better = Better::lower,
       .percent = true,
       .measure = evidence_loss,
       .whole = Whole::all_lanes,
       .measure_step = evidence_loss_at,
       .console = {.heading = "evidence loss", .only_with = "evidence_loss"}},
      {.key = "evidence_held",
       .unit = "share",
       .meaning = "of the evidence tokens, those held at the last step, mean over lanes",
       .label = "evidence held",
       .better = Better::higher,
       .percent = true,
       .measure = evidence_held,
       .whole = Whole::all_lanes,
       .console = {.heading = "evidence held", .only_with = "evidence_held"}},
      {.key = "evidence_nowhere",
       .unit = "share",
       .meaning = "of the evidence tokens, those that no lane of the scope holds then",
       .label = "evidence held in no lane",
       .better = Better::lower,
       .percent = true,
       .measure = evidence_nowhere,
       .whole = Whole::all_lanes},
      {.key = "evidence_nowhere_in_layer",
       .unit = "share",
       .meaning = "of the evidence tokens that a layer still sees at the last step, those that none of its "
                  "lanes holds, mean over layers",
       .formula = "sum over layers of the evidence positions in the layer's window that are in S_t of none "
                  "of its lanes / sum over layers of the evidence positions in the window",
       .label = "evidence held in no lane of a layer",
       .better = Better::lower,
       .percent = true,
       .measure = evidence_nowhere_in_layer,
       .whole = Whole::all_lanes},
      {.key = "prompt_nowhere",
       .unit = "share",
       .meaning = "of the prompt tokens that some layer still sees at the last step, those that no lane of "
                  "the scope holds",
       .label = "prompt held in no lane",
       .better = Better::lower,
       .percent = true,
       .measure = prompt_nowhere<false>,
       .whole = Whole::all_lanes},
      {.key = "prompt_nowhere_in_layer",
       .unit = "share",
       .meaning = "evidence_nowhere_in_layer of all prompt tokens",
       .label = "prompt held in no lane of a layer",
       .better = Better::lower,
       .percent = true,
       .measure = prompt_nowhere<true>,
       .whole = Whole::all_lanes},
  };
}

namespace {

template <sim::PromptSegment segment>
Value kept_share(const Measured& of) {
  constexpr auto index = static_cast<std::size_t>(segment);
  const std::uint64_t tokens = of.outcome.segment_tokens[index];
  if (tokens == 0) return {};
  return mean(of, [](const sim::LaneOutcome& lane) { return lane.kept_of[index]; }) / count(tokens);
}

template <sim::PromptSegment segment>
Metric kept(const char* key, const char* meaning) {
  return {.key = key,
          .unit = "share",
          .meaning = meaning,
          .measure = kept_share<segment>,
          .whole = Whole::all_lanes};
}

}  // namespace

std::vector<Metric> segment_metrics() {
  using enum sim::PromptSegment;
  return {
      kept<special>("kept_special",
                    "of the prompt's special tokens, those held after the prompt, mean over lanes"),
      kept<context>("kept_context", "of the context, likewise"),
      kept<question>("kept_question", "of question and instruction, likewise; null if they follow the cut"),
      kept<template_>("kept_template", "of the prompt's other tokens, such as chat markup, likewise"),
  };
}

}  // namespace kvsim::analysis
