#include "analysis/results/rows.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

using Lanes = std::span<const sim::LaneOutcome>;
using Number = std::optional<double>;

double count(std::uint64_t value) {
  return static_cast<double>(value);
}

template <class Get>
double sum(Lanes lanes, Get get) {
  double total = 0;
  for (const sim::LaneOutcome& lane : lanes) total += static_cast<double>(std::invoke(get, lane));
  return total;
}

template <class Get>
double mean(Lanes lanes, Get get) {
  return sum(lanes, get) / count(lanes.size());
}

/// Sum of `part` over sum of importance: with w the mean over a layer's query heads, XKV's R_i for a set
/// chosen per lane. Undefined where nothing has importance.
template <class Part>
Number retention(Lanes lanes, Part part) {
  const double whole = sum(lanes, &sim::LaneOutcome::importance);
  if (whole == 0) return {};
  return sum(lanes, part) / whole;
}

/// R / log2 n with n the mean number of kept candidates per lane; log2 is zero or negative up to n = 1.
Number importance_retention_per_bit(Lanes lanes, Number r) {
  const double n = mean(lanes, &sim::LaneOutcome::kept_candidates);
  if (!r || n <= 1) return {};
  return *r / std::log2(n);
}

/// Mean over lanes of the mean over a lane's measured steps.
Number per_step(Lanes lanes, double sim::LaneOutcome::*total) {
  double means = 0;
  for (const sim::LaneOutcome& lane : lanes) {
    if (lane.steps == 0) return {};
    means += lane.*total / count(lane.steps);
  }
  return means / count(lanes.size());
}

Number share(const sim::PaidAttention& attention) {
  if (attention.paid == 0) return {};
  return attention.dropped / attention.paid;
}

/// Of the attention that all lanes paid, what fell on dropped positions: lanes weigh by what they paid.
template <class Get>
sim::PaidAttention paid(Lanes lanes, Get get) {
  sim::PaidAttention total;
  for (const sim::LaneOutcome& lane : lanes) total += get(lane);
  return total;
}

void measure_evidence(Row& row, Lanes lanes, std::uint64_t evidence_tokens) {
  if (evidence_tokens == 0) return;
  row.evidence_loss = share(paid(lanes, [](const sim::LaneOutcome& lane) { return lane.evidence; }));
  if (lanes.front().steps == 0) return;
  double held = 0, nowhere = 0;
  for (std::size_t token = 0; token < evidence_tokens; ++token) {
    double lanes_with_it = 0;
    for (const sim::LaneOutcome& lane : lanes) lanes_with_it += lane.holds_evidence[token];
    held += lanes_with_it / count(lanes.size());
    nowhere += lanes_with_it == 0 ? 1 : 0;
  }
  row.evidence_held = held / count(evidence_tokens);
  row.evidence_nowhere = nowhere / count(evidence_tokens);
}

/// Mean over the query heads that have a peak.
Number peak_loss_by_head(Lanes lanes) {
  double total = 0, heads = 0;
  for (const sim::LaneOutcome& lane : lanes)
    for (const sim::PaidAttention& head : lane.peak.heads) {
      const Number loss = share(head);
      total += loss.value_or(0);
      heads += loss ? 1 : 0;
    }
  if (heads == 0) return {};
  return total / heads;
}

void measure_peaks(Row& row, Lanes lanes) {
  const sim::PaidAttention plain = paid(lanes, [](const sim::LaneOutcome& lane) { return lane.peak.plain; });
  row.peak_loss = share(plain);
  row.peak_loss_weighted =
      share(paid(lanes, [](const sim::LaneOutcome& lane) { return lane.peak.weighted; }));
  row.peak_loss_low = share(paid(lanes, [](const sim::LaneOutcome& lane) { return lane.peak.low; }));
  row.peak_loss_by_head = peak_loss_by_head(lanes);
  if (plain.paid == 0) return;
  row.peak_loss_output =
      sum(lanes, [](const sim::LaneOutcome& lane) { return lane.peak.dropped_times_error; }) / plain.paid;
}

void measure_segments(Row& row, Lanes lanes, const sim::SegmentCounts& tokens) {
  const auto kept = [&](sim::PromptSegment segment) -> Number {
    const auto index = static_cast<std::size_t>(segment);
    if (tokens[index] == 0) return {};
    return mean(lanes, [&](const sim::LaneOutcome& lane) { return lane.kept_of[index]; }) /
           count(tokens[index]);
  };
  row.kept_special = kept(sim::PromptSegment::special);
  row.kept_context = kept(sim::PromptSegment::context);
  row.kept_question = kept(sim::PromptSegment::question);
  row.kept_template = kept(sim::PromptSegment::template_);
}

/// What does not average over layers: shares of what all lanes of a scope paid or were given.
void measure_shares(Row& row, Lanes lanes, const sim::Outcome& outcome) {
  measure_evidence(row, lanes, outcome.evidence_tokens);
  measure_peaks(row, lanes);
  measure_segments(row, lanes, outcome.segment_tokens);
}

/// Everything a scope's lanes say, for lanes of one layer.
void measure(Row& row, Lanes lanes, std::uint64_t token_bytes) {
  row.budget_tokens = mean(lanes, &sim::LaneOutcome::budget_tokens);
  row.r = retention(lanes, &sim::LaneOutcome::importance_kept);
  row.r_oracle = retention(lanes, &sim::LaneOutcome::importance_oracle);
  row.isr = importance_retention_per_bit(lanes, row.r);
  row.attention_loss = per_step(lanes, &sim::LaneOutcome::attention_loss);
  row.attention_loss_oracle = per_step(lanes, &sim::LaneOutcome::attention_loss_oracle);
  row.output_error = per_step(lanes, &sim::LaneOutcome::output_error);
  row.output_cosine = per_step(lanes, &sim::LaneOutcome::output_cosine);
  row.oracle_cosine = per_step(lanes, &sim::LaneOutcome::oracle_cosine);
  row.kept_tokens = mean(lanes, &sim::LaneOutcome::kept_tokens);
  row.held_tokens = mean(lanes, &sim::LaneOutcome::held_at_end);
  std::uint64_t held = 0;
  for (const sim::LaneOutcome& lane : lanes) held += lane.kept_tokens;
  row.kept_bytes = held * token_bytes;
}

/// Unweighted mean over layers; undefined as soon as one layer is, so that no mean speaks for fewer layers
/// than it seems to.
Number mean_over_layers(std::span<const Row> layers, Number Row::*metric) {
  double total = 0;
  for (const Row& layer : layers) {
    if (!(layer.*metric)) return {};
    total += *(layer.*metric);
  }
  return total / count(layers.size());
}

/// Rows of one cell that was run.
class CellRows {
 public:
  CellRows(const sim::Outcome& outcome, const sim::CellOutcome& cell, Row identity)
      : outcome_(outcome), cell_(cell), identity_(std::move(identity)) {}

  std::vector<Row> make(Scope scope) const {
    switch (scope) {
      case Scope::head:
        return heads();
      case Scope::layer:
        return layers();
      case Scope::all:
        return {whole()};
      case Scope::step:
        return steps();
    }
    bug("unknown scope");
  }

 private:
  Row row(Lanes lanes) const {
    Row made = identity_;
    if (!cell_.skipped.empty()) return made;
    measure(made, lanes, outcome_.token_bytes);
    measure_shares(made, lanes, outcome_);
    made.evicted_tokens = count(outcome_.prompt + outcome_.decode) - *made.held_tokens;
    // A lane that never evicts is given the sequence; it spends its prompt.
    const std::uint64_t most = std::max(outcome_.prompt, cell_.budget_tokens);
    made.allocated_tokens =
        mean(lanes, [&](const sim::LaneOutcome& lane) { return std::min(lane.budget_tokens, most); });
    return made;
  }
  Lanes lanes(std::uint32_t layer, std::uint32_t first_head, std::uint32_t n) const {
    if (!cell_.skipped.empty()) return {};
    return Lanes(cell_.lanes).subspan(std::size_t{layer} * outcome_.n_kv_heads + first_head, n);
  }

  std::vector<Row> heads() const {
    std::vector<Row> rows;
    for (std::uint32_t layer = 0; layer < outcome_.n_layers; ++layer) {
      for (std::uint32_t head = 0; head < outcome_.n_kv_heads; ++head) {
        rows.push_back(row(lanes(layer, head, 1)));
        rows.back().layer = layer;
        rows.back().head = head;
      }
    }
    return rows;
  }

  std::vector<Row> layers() const {
    std::vector<Row> rows;
    for (std::uint32_t layer = 0; layer < outcome_.n_layers; ++layer) {
      rows.push_back(row(lanes(layer, 0, outcome_.n_kv_heads)));
      rows.back().layer = layer;
      if (cell_.layers.empty() || outcome_.measured_steps() == 0) continue;
      const double steps = count(outcome_.measured_steps());
      rows.back().projected_output_error = cell_.layers[layer].projected_error / steps;
      rows.back().projected_output_cosine = cell_.layers[layer].projected_cosine / steps;
    }
    return rows;
  }

  Row whole() const {
    Row made = identity_;
    if (cell_.budget_tokens > 0) made.budget_tokens = count(cell_.budget_tokens);
    if (!cell_.skipped.empty()) return made;
    const std::vector<Row> parts = layers();
    for (Number Row::*metric :
         {&Row::r, &Row::r_oracle, &Row::isr, &Row::attention_loss, &Row::attention_loss_oracle,
          &Row::output_error, &Row::kept_tokens, &Row::oracle_cosine, &Row::allocated_tokens,
          &Row::held_tokens, &Row::evicted_tokens, &Row::output_cosine, &Row::projected_output_error,
          &Row::projected_output_cosine}) {
      made.*metric = mean_over_layers(parts, metric);
    }
    measure_shares(made, cell_.lanes, outcome_);
    std::uint64_t bytes = 0;
    for (const Row& part : parts) bytes += *part.kept_bytes;
    made.kept_bytes = bytes;
    made.r_bound = cell_.r_bound;
    made.attention_loss_bound = cell_.attention_loss_bound;
    return made;
  }

  std::vector<Row> steps() const {
    std::vector<Row> rows;
    for (std::uint64_t step = 0; step < outcome_.measured_steps(); ++step) {
      Row& made = rows.emplace_back(identity_);
      made.step = outcome_.first_step + step;
      if (cell_.budget_tokens > 0) made.budget_tokens = count(cell_.budget_tokens);
      if (!cell_.skipped.empty()) continue;
      made.attention_loss = at_step(step, &sim::StepOutcome::attention_loss);
      made.attention_loss_oracle = at_step(step, &sim::StepOutcome::attention_loss_oracle);
      made.kept_tokens = at_step(step, &sim::StepOutcome::held);
      made.evidence_loss = share(
          paid(cell_.lanes, [&](const sim::LaneOutcome& lane) { return lane.each_step[step].evidence; }));
    }
    return rows;
  }

  /// Mean over layers of the mean over lanes.
  template <class Field>
  double at_step(std::uint64_t step, Field field) const {
    double means = 0;
    for (std::uint32_t layer = 0; layer < outcome_.n_layers; ++layer)
      means += mean(lanes(layer, 0, outcome_.n_kv_heads),
                    [&](const sim::LaneOutcome& lane) { return std::invoke(field, lane.each_step[step]); });
    return means / count(outcome_.n_layers);
  }

  const sim::Outcome& outcome_;
  const sim::CellOutcome& cell_;
  const Row identity_;
};

void check_shape(const sim::Request& request, const sim::Outcome& outcome, Scope scope) {
  if (outcome.cells.size() != request.cells.size())
    bug("the outcome has another number of cells than the request");
  if (outcome.n_layers == 0 || outcome.n_kv_heads == 0) bug("the outcome has no lanes");
  for (const sim::CellOutcome& cell : outcome.cells) {
    const std::size_t lanes = cell.skipped.empty() ? std::size_t{outcome.n_layers} * outcome.n_kv_heads : 0;
    if (cell.lanes.size() != lanes) bug("a cell of the outcome has another number of lanes than the model");
    for (const sim::LaneOutcome& lane : cell.lanes)
      if (scope == Scope::step && lane.each_step.size() != outcome.measured_steps())
        bug("a lane of the outcome did not record each step");
  }
}

}  // namespace

const char* scope_name(Scope scope) {
  switch (scope) {
    case Scope::all:
      return "all";
    case Scope::layer:
      return "layer";
    case Scope::head:
      return "head";
    case Scope::step:
      return "step";
  }
  bug("unknown scope");
}

Scope parse_scope(std::string_view name) {
  for (const Scope scope : {Scope::all, Scope::layer, Scope::head, Scope::step})
    if (name == scope_name(scope)) return scope;
  usage_error("unknown scope '" + std::string(name) + "'", "",
              suggestion(name, {"all", "layer", "head", "step"}));
}

std::optional<double> Row::excess_loss() const {
  if (!attention_loss || !attention_loss_oracle) return {};
  return *attention_loss - *attention_loss_oracle;
}

namespace {

/// How a column is called, explained and read.
struct Column {
  const char* key;
  const char* unit;
  const char* description;
  Value (*get)(const Row&);
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"trace", "", "trace file, as given", [](const Row& r) { return Value(r.trace); }},
      {"policy", "", "composition, as a table shows it", [](const Row& r) { return Value(r.policy); }},
      {"params", "", "composition with every effective parameter",
       [](const Row& r) { return Value(r.params); }},
      {"budget", "", "budget, as given", [](const Row& r) { return Value(r.budget); }},
      {"budget_tokens", "tokens per lane",
       "what the budget comes to for this trace (scope all: as asked, below: as allocated)",
       [](const Row& r) { return value_of(r.budget_tokens); }},
      {"cut", "",
       "where the prompt ends for policies: prompt, question, or so many tokens; all that follows arrives "
       "token by token",
       [](const Row& r) { return Value(r.cut); }},
      {"scope", "", "all, layer, head or step", [](const Row& r) { return Value(scope_name(r.scope)); }},
      {"layer", "index", "null at scopes all and step", [](const Row& r) { return value_of(r.layer); }},
      {"head", "index", "KV head; null but at scope head", [](const Row& r) { return value_of(r.head); }},
      {"evidence_loss", "share",
       "of the attention that the measured steps pay to evidence tokens, the part on tokens no longer held; "
       "null if the trace marks none",
       [](const Row& r) { return value_of(r.evidence_loss); }},
      {"evidence_held", "share", "of the evidence tokens, those held at the last step, mean over lanes",
       [](const Row& r) { return value_of(r.evidence_held); }},
      {"evidence_nowhere", "share", "of the evidence tokens, those that no lane of the scope holds then",
       [](const Row& r) { return value_of(r.evidence_nowhere); }},
      {"peak_loss", "share",
       "of the attention on peaks (far keys of rows in which one holds at least half), the part on tokens no "
       "longer held; null if no row has a peak",
       [](const Row& r) { return value_of(r.peak_loss); }},
      {"r", "share", "importance retained by the policy (scope all: R_avg)",
       [](const Row& r) { return value_of(r.r); }},
      {"r_oracle", "share", "importance the best set of the same size retains, at this policy's own split",
       [](const Row& r) { return value_of(r.r_oracle); }},
      {"isr", "share per bit", "r / log2(kept tokens that have an importance)",
       [](const Row& r) { return value_of(r.isr); }},
      {"attention_loss", "share", "attention of a measured step on tokens no longer held, mean over steps",
       [](const Row& r) { return value_of(r.attention_loss); }},
      {"attention_loss_oracle", "share",
       "the same for the best set of the same size, chosen anew at each step, at this policy's own split",
       [](const Row& r) { return value_of(r.attention_loss_oracle); }},
      {"output_error", "ratio",
       "distance of the attention output that the compressed cache computes from the full cache's, over the "
       "latter's length, mean over query heads and steps",
       [](const Row& r) { return value_of(r.output_error); }},
      {"kept_tokens", "tokens per lane",
       "positions held after the prompt (scope step: at the step), mean over lanes",
       [](const Row& r) { return value_of(r.kept_tokens); }},
      {"kept_bytes", "bytes", "their keys and values as the trace stores them, over the scope's lanes",
       [](const Row& r) { return value_of(r.kept_bytes); }},
      {"oracle_cosine", "ratio",
       "cosine of the attention on what is held to that on the best set of the same size, mean over steps, "
       "at "
       "this policy's own split",
       [](const Row& r) { return value_of(r.oracle_cosine); }},
      {"allotted_tokens", "tokens per lane",
       "what the allocation gave out, mean over lanes; budget_tokens unless a published formula spends "
       "another total",
       [](const Row& r) { return value_of(r.allocated_tokens); }},
      {"workload", "", "kind of prompt, if the trace says",
       [](const Row& r) { return r.workload.empty() ? Value() : Value(r.workload); }},
      {"seed", "", "seed of random policies", [](const Row& r) { return Value(r.seed); }},
      {"step", "index",
       "measured step: s attends with the s-th token behind the cut, 0 with the last prompt token once more; "
       "null but at scope step",
       [](const Row& r) { return value_of(r.step); }},
      {"role", "",
       "policy; oracle: knows the future, a bound at its own split; own_budget: keeps what it likes, "
       "whatever the budget",
       [](const Row& r) {
         return Value(r.oracle ? "oracle" : r.own_budget ? "own_budget" : "policy");
       }},
      {"held_tokens", "tokens per lane",
       "positions held at the last step, mean over lanes: what a policy that lets generated tokens "
       "stay comes to",
       [](const Row& r) { return value_of(r.held_tokens); }},
      {"evicted_tokens", "tokens per lane",
       "positions of the sequence not held at the last step, mean over lanes; 0: the policy never evicted",
       [](const Row& r) { return value_of(r.evicted_tokens); }},
      {"output_cosine", "ratio", "cosine of the same two outputs, mean over query heads and steps",
       [](const Row& r) { return value_of(r.output_cosine); }},
      {"projected_output_error", "ratio",
       "output_error after the output projection over all heads of a layer; null without output weights and "
       "at scope head",
       [](const Row& r) { return value_of(r.projected_output_error); }},
      {"projected_output_cosine", "ratio", "output_cosine after the output projection, likewise",
       [](const Row& r) { return value_of(r.projected_output_cosine); }},
      {"peak_loss_weighted", "share", "peak_loss with every row weighted by its best far key",
       [](const Row& r) { return value_of(r.peak_loss_weighted); }},
      {"peak_loss_low", "share", "peak_loss with the lower threshold, 0.3",
       [](const Row& r) { return value_of(r.peak_loss_low); }},
      {"peak_loss_by_head", "share", "mean over the query heads that have a peak of their own peak_loss",
       [](const Row& r) { return value_of(r.peak_loss_by_head); }},
      {"peak_loss_output", "ratio", "peak_loss with what was dropped in a row times the row's output error",
       [](const Row& r) { return value_of(r.peak_loss_output); }},
      {"kept_special", "share",
       "of the prompt's special tokens, those held after the prompt, mean over lanes",
       [](const Row& r) { return value_of(r.kept_special); }},
      {"kept_context", "share", "of the context, likewise",
       [](const Row& r) { return value_of(r.kept_context); }},
      {"kept_question", "share", "of question and instruction, likewise; null if they follow the cut",
       [](const Row& r) { return value_of(r.kept_question); }},
      {"kept_template", "share", "of the prompt's other tokens, such as chat markup, likewise",
       [](const Row& r) { return value_of(r.kept_template); }},
      {"instruction_before", "tokens",
       "of the prompt before its context, which every cut leaves in the prompt",
       [](const Row& r) { return value_of(r.instruction_before); }},
      {"holding", "",
       "what it may hold beside the budget B: managed, never more; append_only, every generated token; "
       "overshoot, what attends before it leaves",
       [](const Row& r) {
         return r.holding ? Value(std::string(policy::holding_name(*r.holding))) : Value();
       }},
      {"r_bound", "share",
       "most importance that any choice of as many prompt tokens retains, at any split over lanes; scope all",
       [](const Row& r) { return value_of(r.r_bound); }},
      {"attention_loss_bound", "share",
       "least attention loss of any schedule and any split of the total, for policies of the same holding; "
       "scope all, and only if bounds were asked for",
       [](const Row& r) { return value_of(r.attention_loss_bound); }},
  };
  return all;
}

const std::vector<Column>& priced_columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> out = columns();
    out.insert(out.end(),
               {{"machine", "", "machine the next columns are modelled for, one sequence at a time",
                 [](const Row& r) { return Value(r.machine); }},
                {"cache_bytes", "bytes",
                 "cache after the last step in fp16, the policy's own data included (kvsim cost)",
                 [](const Row& r) { return value_of(r.cache_bytes); }},
                {"peak_bytes", "bytes", "most that is needed at once, weights and activations included",
                 [](const Row& r) { return value_of(r.peak_bytes); }},
                {"ttft_seconds", "s", "modelled time to the first token, the policy's work included",
                 [](const Row& r) { return value_of(r.ttft_seconds); }},
                {"tpot_seconds", "s", "modelled time per output token after the first, mean",
                 [](const Row& r) { return value_of(r.tpot_seconds); }}});
    return out;
  }();
  return all;
}

}  // namespace

Records records_of(const std::vector<Row>& rows) {
  const bool priced =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.machine.empty(); });
  const std::vector<Column>& all = priced ? priced_columns() : columns();
  Records out;
  for (const Column& column : all) out.columns.push_back({column.key, column.unit, column.description});
  for (const Row& row : rows) {
    std::vector<Value>& fields = out.rows.emplace_back();
    for (const Column& column : all) fields.push_back(column.get(row));
  }
  return out;
}

std::vector<Row> make_rows(const std::string& trace_name, const sim::Request& request,
                           const sim::Outcome& outcome, Scope scope) {
  check_shape(request, outcome, scope);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < request.cells.size(); ++i) {
    const sim::Cell& cell = request.cells[i];
    Row identity;
    identity.trace = trace_name;
    identity.policy = cell.composition.name;
    identity.params = cell.composition.params;
    identity.budget = cell.budget.text;
    identity.scope = scope;
    identity.seed = request.seed;
    identity.workload = outcome.workload;
    identity.cut = outcome.cut;
    identity.instruction_before = outcome.instruction_before;
    identity.skipped = outcome.cells[i].skipped;
    identity.holding = outcome.cells[i].holding;
    identity.own_budget =
        cell.composition.eviction.spec != nullptr && cell.composition.eviction.spec->own_budget;
    identity.oracle =
        cell.composition.eviction.spec != nullptr && cell.composition.eviction.spec->make_oracle;
    const std::vector<Row> of_cell = CellRows(outcome, outcome.cells[i], identity).make(scope);
    rows.insert(rows.end(), of_cell.begin(), of_cell.end());
  }
  return rows;
}

}  // namespace kvsim::analysis
