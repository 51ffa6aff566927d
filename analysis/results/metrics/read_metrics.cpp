#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
namespace {

/// Tokens that a lane reads at a step, summed over steps: without a selection all that it attends.
double loaded(const sim::LaneOutcome& lane) {
  return lane.read ? lane.read->loaded_tokens : count(lane.attended_tokens);
}

bool selects(const Measured& of) {
  return of.lanes.front().read.has_value();
}

/// Mean over lanes of the mean over a lane's measured steps; undefined without steps.
template <class Get>
Value mean_over_steps(const Measured& of, Get get) {
  if (of.lanes.front().steps == 0) return {};
  return mean(of, [&](const sim::LaneOutcome& lane) { return get(lane) / count(lane.steps); });
}

Value read_tokens(const Measured& of) {
  return mean_over_steps(of, [](const sim::LaneOutcome& lane) {
    return lane.read ? lane.read->read_tokens : count(lane.attended_tokens);
  });
}

Value read_tokens_at(const Measured& of, std::uint64_t step) {
  return selects(of) ? mean_at_step<&sim::StepOutcome::read_tokens>(of, step)
                     : mean_at_step<&sim::StepOutcome::held>(of, step);
}

Value loaded_tokens(const Measured& of) {
  return mean_over_steps(of, loaded);
}

Value loaded_tokens_at(const Measured& of, std::uint64_t step) {
  return selects(of) ? mean_at_step<&sim::StepOutcome::loaded_tokens>(of, step)
                     : mean_at_step<&sim::StepOutcome::held>(of, step);
}

Value read_recall(const Measured& of) {
  if (!selects(of)) return {};
  return mean_over_steps(of, [](const sim::LaneOutcome& lane) { return lane.read->recall; });
}

Value read_recall_at(const Measured& of, std::uint64_t step) {
  return selects(of) ? mean_at_step<&sim::StepOutcome::recall>(of, step) : Value();
}

Value hit_rate(const Measured& of) {
  if (!selects(of)) return {};
  const double later = sum(of, [](const sim::LaneOutcome& lane) { return lane.read->later_loaded_tokens; });
  return ratio(sum(of, [](const sim::LaneOutcome& lane) { return lane.read->hits; }), later);
}

Value hit_rate_at(const Measured& of, std::uint64_t step) {
  if (!selects(of) || step == 0) return {};
  const auto total = [&](auto member) {
    return sum(of, [&](const sim::LaneOutcome& lane) { return lane.each_step[step].*member; });
  };
  return total(&sim::StepOutcome::hits) / total(&sim::StepOutcome::loaded_tokens);
}

/// What a token of a lane takes, as it is stored at the last step.
double token_bytes(const Measured& of, const sim::LaneOutcome& lane) {
  if (!lane.stored || lane.held_at_end == 0) return count(of.outcome.token_bytes);
  return lane.stored->held_bits / 8 / count(lane.held_at_end);
}

Value read_bytes(const Measured& of) {
  if (of.lanes.front().steps == 0) return {};
  return sum(of, [&](const sim::LaneOutcome& lane) {
    const double index = lane.read ? lane.read->index_bits_read / 8 : 0;
    return (loaded(lane) * token_bytes(of, lane) + index) / count(lane.steps);
  });
}

Value read_bytes_at(const Measured& of, std::uint64_t step) {
  return sum(of, [&](const sim::LaneOutcome& lane) {
    const sim::StepOutcome& at = lane.each_step[step];
    const double tokens = count(lane.read ? at.loaded_tokens : at.held);
    return tokens * token_bytes(of, lane) + at.index_bits_read / 8;
  });
}

Value index_read_bytes(const Measured& of) {
  if (!selects(of) || of.lanes.front().steps == 0) return {};
  return sum(of,
             [](const sim::LaneOutcome& lane) { return lane.read->index_bits_read / 8 / count(lane.steps); });
}

Value index_read_bytes_at(const Measured& of, std::uint64_t step) {
  if (!selects(of)) return {};
  return sum(of, [&](const sim::LaneOutcome& lane) { return lane.each_step[step].index_bits_read / 8; });
}

Value index_bytes(const Measured& of) {
  if (!selects(of)) return {};
  return sum(of, [](const sim::LaneOutcome& lane) { return lane.read->index_bits / 8; });
}

}  // namespace

std::vector<Metric> read_metrics() {
  return {
      {.key = "read_tokens",
       .unit = "tokens per query head",
       .meaning =
           "stored tokens that a query head reads at a step, mean over query heads and steps; without a "
           "selection all that are attended",
       .label = "tokens read per step",
       .measure = read_tokens,
       .measure_step = read_tokens_at,
       .console = {.heading = "read tokens", .show = Console::Show::tokens, .only_with = "read_recall"}},
      {.key = "loaded_tokens",
       .unit = "tokens per lane",
       .meaning =
           "stored tokens that the query heads of a KV head read together at a step, mean over lanes and "
           "steps",
       .label = "tokens loaded per step",
       .measure = loaded_tokens,
       .measure_step = loaded_tokens_at},
      {.key = "read_recall",
       .unit = "share",
       .meaning = "of the tokens with the most attention in the recorded row, as many as a query head reads, "
                  "those that it reads, mean over query heads and steps; null without a selection, as are "
                  "hit_rate, index_bytes and index_read_bytes",
       .label = "recall of the top tokens",
       .better = Better::higher,
       .percent = true,
       .measure = read_recall,
       .measure_step = read_recall_at,
       .console = {.heading = "recall", .only_with = "read_recall"}},
      {.key = "hit_rate",
       .unit = "share",
       .meaning =
           "of the tokens loaded at a step, those that the step before loaded, too: what a buffer of one "
           "step's tokens saves; over lanes and steps from the second on",
       .label = "hits of a step's buffer",
       .percent = true,
       .measure = hit_rate,
       .whole = Whole::all_lanes,
       .measure_step = hit_rate_at},
      {.key = "read_bytes",
       .unit = "bytes per step",
       .meaning =
           "what a step reads over the scope's lanes: the loaded tokens as they are stored, and the index",
       .formula = "mean over steps of |L_t| times the bytes of a token of the lane (held bits / held "
                  "tokens under a representation), summed over lanes, + index_read_bytes",
       .label = "bytes read per step",
       .measure = read_bytes,
       .whole = Whole::all_lanes,
       .measure_step = read_bytes_at,
       .console = {.heading = "read size", .show = Console::Show::bytes, .only_with = "read_recall"}},
      {.key = "index_read_bytes",
       .unit = "bytes per step",
       .meaning = "the part of read_bytes that choosing reads of the index",
       .label = "bytes of index read per step",
       .measure = index_read_bytes,
       .whole = Whole::all_lanes,
       .measure_step = index_read_bytes_at},
      {.key = "index_bytes",
       .unit = "bytes",
       .meaning = "what the index takes at the last step beside what is held, over the scope's lanes",
       .label = "bytes of index",
       .measure = index_bytes,
       .whole = Whole::all_lanes},
  };
}

}  // namespace kvsim::analysis
