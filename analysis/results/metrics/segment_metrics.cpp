#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
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
