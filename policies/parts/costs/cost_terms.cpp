#include "policies/parts/costs/cost_terms.hpp"

#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/parts/rows/accumulated_attention.hpp"
#include "policies/parts/rows/pooling.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

/// Returns the bytes of a slot's position, 0 if the rule needs none. Sinks keep the first slots, but once
/// slots are reused, only a stored position tells which tokens are in the window, which block a token belongs
/// to and which of two tokens is older.
std::uint64_t positions(const KeepRule& selection) {
  const bool needed =
      selection.protection.window > 0 || selection.granularity > 1 || selection.tie != Tie::slot;
  return needed ? kPositionBytes : 0;
}

/// How tokens are evicted from a full cache: `at_once` of them every `at_once` steps, and the slots behind
/// them move up.
struct Leaving {
  std::size_t dropped = 1;  ///< tokens evicted at once because of `drop`
  double at_once = 1;

  Leaving(const KeepRule& selection, const CostShape& shape)
      : dropped(static_cast<std::size_t>(std::max(1.0, selection.drop * real(shape.budget)))),
        at_once(real(std::max(dropped, selection.granularity))) {}
};

/// Work for a token that arrives at a full cache, beside the work per slot.
Work making_room(const CostShape& shape, const Leaving& leaving, const Scoring& scoring) {
  const Work passes{.launches = scoring.passes - 1 + 1 / leaving.at_once};
  if (leaving.dropped == 1) return passes;
  return passes + 1 / real(leaving.dropped) * moved(shape, shape.budget - leaving.dropped);
}

/// Work per slot: changing its state, and the search for the lowest score.
Work slot_work(const CostShape& shape, const Sets& sets, const Leaving& leaving, const Scoring& scoring) {
  const double compares = leaving.dropped == 1 ? 1 : std::log2(real(shape.budget));
  const Work search{.ops = sets.count * compares, .bytes = sets.count * real(scoring.state - scoring.unread)};
  return scoring.slot + 1 / leaving.at_once * search;
}

/// Work of a streamed prompt. The state of all tokens is computed in one kernel. The first B tokens fill the
/// cache, each of the others is a step; attention rows count from the first token on.
Work streamed(const CostShape& shape, const Scoring& scoring, const Work& making_room, const Work& slot) {
  const double prompt = real(shape.prompt), filled = real(std::min(shape.prompt, shape.budget)),
               steps = prompt - filled;
  Work state = prompt * scoring.token;
  state.launches = scoring.token.launches;
  const Work out = state + steps * making_room + steps * filled * slot;
  if (!scoring.decode_rows) return out;
  const double filling = filled * (filled + 1) / 2;
  const double row_bytes = 2 * real(shape.query_heads) * real(shape.element_bytes);
  return out + filling * slot + Work{.bytes = (filling + steps * filled) * row_bytes};
}

}  // namespace

std::uint64_t whole_bytes(double bytes) {
  const double rounded = std::ceil(bytes);
  if (!(rounded < 0x1p63))
    usage_error("what a policy holds beside the cache does not fit 64 bits", "policy cost",
                "A shorter prompt, or fewer rows.");
  return static_cast<std::uint64_t>(rounded);
}

Metadata Sets::per_slot(std::uint64_t bytes) const {
  return shared ? Metadata{.layer_slot = bytes} : Metadata{.lane_slot = bytes};
}

Sets sets_of(const Params& params, const CostShape& shape) {
  if (params.has("unit") && params.is("unit", "layer")) return {true, 1};
  return {false, real(shape.kv_heads)};
}

Work over_keys(const CostShape& shape, std::size_t tokens, double ops) {
  const double components = real(tokens) * real(shape.kv_heads * shape.head_dim);
  return {.ops = ops * components, .bytes = components * real(shape.element_bytes), .launches = 1};
}

Work over_values(const CostShape& shape, std::size_t tokens, double ops) {
  const double components = real(tokens) * real(shape.kv_heads * shape.value_dim);
  return {.ops = ops * components, .bytes = components * real(shape.element_bytes), .launches = 1};
}

Work softmax_of(const CostShape& shape, double pairs) {
  return {.flops = 2 * real(shape.head_dim) * pairs, .ops = 5 * pairs};
}

Work projected_keys(const CostShape& shape, std::size_t tokens, std::size_t columns) {
  Work out = over_keys(shape, tokens, 0);
  out.flops = 2 * real(columns) * real(tokens) * real(shape.kv_heads * shape.head_dim);
  return out;
}

Work projected_queries(const CostShape& shape, std::size_t heads, std::size_t columns) {
  const double components = real(heads * shape.head_dim);
  return {.flops = 2 * real(columns) * components,
          .bytes = components * real(shape.element_bytes),
          .launches = 1};
}

Work rows_anew(const CostShape& shape, std::size_t tokens, std::size_t rows) {
  if (rows == 0) return {};
  return {.flops = 2 * real(rows) * real(tokens) * real(shape.query_heads * shape.head_dim),
          .bytes = real(tokens) * real(shape.kv_heads * shape.head_dim * shape.element_bytes),
          .launches = 1};
}

double seen(const CostShape& shape, std::size_t rows) {
  const double n = real(std::min(rows, shape.prompt)), prompt = real(shape.prompt);
  return real(shape.query_heads) * (n * prompt - n * (n - 1) / 2);
}

Work prompt_sums(const CostShape& shape, std::size_t rows) {
  return {.ops = seen(shape, rows), .launches = 1};
}

Work pooling(const CostShape& shape, std::size_t kernel) {
  const double sums = real(shape.query_heads) * real(shape.prompt);
  return {.ops = real(kernel) * sums, .bytes = 2 * kScoreBytes * sums, .launches = 1};
}

Work sorted(const CostShape& shape, const Sets& sets) {
  const double prompt = real(shape.prompt), scores = sets.count * prompt;
  return {.ops = scores * std::log2(std::max(prompt, 1.0)), .bytes = kScoreBytes * scores, .launches = 1};
}

Work moved(const CostShape& shape, std::size_t tokens) {
  const double components = real(tokens) * real(shape.kv_heads * (shape.head_dim + shape.value_dim));
  return {.bytes = 2 * components * real(shape.element_bytes), .launches = 1};
}

Cost scored_cost(const Params& params, const CostShape& shape, const Scoring& scoring) {
  const KeepRule selection = KeepRule::of(params);
  const Sets sets = sets_of(params, shape);
  Cost out;
  out.streams = selection.stream;
  out.appends = !scoring.decodes || (params.has("decode") && !params.flag("decode"));
  if (!out.appends) {
    const Leaving leaving(selection, shape);
    const Work room = making_room(shape, leaving, scoring);
    out.decode_rows = scoring.decode_rows;
    out.metadata = sets.per_slot(scoring.state + positions(selection));
    out.step = scoring.token + room;
    out.step_slot = slot_work(shape, sets, leaving, scoring);
    if (out.streams) out.prompt = streamed(shape, scoring, room, out.step_slot);
  }
  if (out.streams) return out;
  // A prompt within the budget is not scored, unless decoding continues from its scores.
  if (out.appends && shape.prompt <= shape.budget) return out;
  out.prompt_rows = scoring.prompt_rows;
  out.prompt = scoring.prompt;
  out.scratch_bytes = scoring.scratch + whole_bytes(sets.count * real(shape.prompt) * kScoreBytes);
  if (shape.prompt > shape.budget) out.prompt = out.prompt + sorted(shape, sets) + moved(shape, shape.budget);
  return out;
}

Cost recency_cost(const CostShape& shape) {
  Cost out;
  if (shape.prompt > shape.budget) out.prompt = moved(shape, shape.budget);
  return out;
}

Scoring prompt_scoring(std::size_t rows, const Work& scores) {
  Scoring out;
  out.decodes = false;
  out.prompt_rows = rows;
  out.prompt = scores;
  return out;
}

Scoring window_scoring(const CostShape& shape, std::size_t rows, const std::string& pool) {
  const Cost cost = window_cost(shape, rows, pool);
  Scoring out = prompt_scoring(rows, cost.prompt);
  out.scratch = cost.scratch_bytes;
  return out;
}

Cost window_cost(const CostShape& shape, std::size_t rows, const std::string& pool) {
  const Pooling smooth = Pooling::parse(pool);
  const double buffered = rows == kAllRows ? 1 : real(std::min(rows, shape.prompt));
  Cost out;
  out.prompt_rows = rows;
  out.scratch_bytes = whole_bytes(buffered * real(shape.query_heads) * real(shape.prompt) * kScoreBytes);
  out.prompt = prompt_sums(shape, rows);
  if (smooth.kind != Pooling::Kind::none) out.prompt = out.prompt + pooling(shape, smooth.kernel);
  return out;
}

std::uint64_t position_bytes(const Params& params) {
  return positions(KeepRule::of(params));
}

Part per_lane(Part base) {
  for (Params::Entry& entry : base.params.entries)
    if (entry.name == "unit") entry.text = "lane";
  return base;
}

Cost prompt_only(Cost cost) {
  cost.appends = true;
  cost.decode_rows = false;
  cost.metadata = {};
  cost.step = cost.step_slot = {};
  return cost;
}

Scoring accumulating(const Params& params, const CostShape& shape, const Accumulation& rule) {
  const Sets sets = sets_of(params, shape);
  Scoring out;
  out.state = rule.mean ? 2 * kScoreBytes : kScoreBytes;  // the sum, and its number of rows
  out.prompt_rows = rule.rows;
  out.decode_rows = rule.decode;
  out.prompt = prompt_sums(shape, rule.rows);
  out.passes = 2;
  out.slot = {.ops = real(shape.query_heads) + sets.count * (rule.decay == 1 ? 0 : 1),
              .bytes = sets.count * static_cast<double>(out.state)};
  return out;
}

Cost gains_cost(const CostShape& shape, std::size_t lists) {
  Cost out;
  out.prompt = sorted(shape, sets_of({}, shape));
  out.prompt.ops += real(shape.budget) * real(shape.kv_heads) * std::log2(real(lists));
  out.metadata.lane = kNumberBytes;
  return out;
}

Cost cost_of_marked(const Params&, const CostShape& shape) {
  return {.prompt = moved(shape, shape.prompt), .appends = true};
}

}  // namespace kvsim::policy
