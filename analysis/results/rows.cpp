#include "analysis/results/rows.hpp"

#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/policy_labels.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

using Lanes = std::span<const sim::LaneOutcome>;

/// Rows of one cell.
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
  bool ran() const { return cell_.skipped.empty(); }

  Measured all_lanes(Scope scope) const { return {outcome_, cell_, cell_.lanes, scope}; }
  Measured lanes_of(std::uint32_t layer, Scope scope) const {
    return {outcome_, cell_,
            Lanes(cell_.lanes).subspan(std::size_t{layer} * outcome_.n_kv_heads, outcome_.n_kv_heads), scope,
            layer};
  }

  /// Of lanes of one layer.
  Row measured(const Measured& of) const {
    Row row = identity_;
    double budget = 0;
    for (const sim::LaneOutcome& lane : of.lanes) budget += static_cast<double>(lane.budget_tokens);
    row.budget_tokens = budget / static_cast<double>(of.lanes.size());
    const std::vector<Metric>& all = all_metrics();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].measure != nullptr) row.set(i, all[i].measure(of));
    return row;
  }

  std::vector<Row> heads() const {
    std::vector<Row> rows;
    for (std::uint32_t layer = 0; layer < outcome_.n_layers; ++layer) {
      for (std::uint32_t head = 0; head < outcome_.n_kv_heads; ++head) {
        if (ran()) {
          Measured of = lanes_of(layer, Scope::head);
          of.lanes = of.lanes.subspan(head, 1);
          rows.push_back(measured(of));
        } else {
          rows.push_back(identity_);
        }
        rows.back().layer = layer;
        rows.back().head = head;
      }
    }
    return rows;
  }

  std::vector<Row> layers() const {
    std::vector<Row> rows;
    for (std::uint32_t layer = 0; layer < outcome_.n_layers; ++layer) {
      rows.push_back(ran() ? measured(lanes_of(layer, Scope::layer)) : identity_);
      rows.back().layer = layer;
    }
    return rows;
  }

  /// The value of the whole model. `measure` takes the lanes that it is given at `scope`; layers have theirs.
  template <class Measure>
  Value of_model(Whole whole, Scope scope, Measure measure) const {
    if (whole == Whole::all_lanes) return measure(all_lanes(scope));
    double total = 0;
    for (std::uint32_t layer = 0; layer < outcome_.n_layers; ++layer) {
      const std::optional<double> value = number(measure(lanes_of(layer, Scope::layer)));
      if (!value) return {};  // so that no mean speaks for fewer layers than it seems to
      total += *value;
    }
    return total / static_cast<double>(outcome_.n_layers);
  }

  Row of_model() const {
    Row row = identity_;
    if (cell_.asked_tokens > 0) row.budget_tokens = cell_.asked_tokens;
    return row;
  }

  Row whole() const {
    Row row = of_model();
    const std::vector<Metric>& all = all_metrics();
    for (std::size_t i = 0; i < all.size() && ran(); ++i)
      if (all[i].measure != nullptr) row.set(i, of_model(all[i].whole, Scope::all, all[i].measure));
    return row;
  }

  std::vector<Row> steps() const {
    std::vector<Row> rows;
    const std::vector<Metric>& all = all_metrics();
    for (std::uint64_t step = 0; step < outcome_.measured_steps(); ++step) {
      Row& row = rows.emplace_back(of_model());
      row.step = outcome_.first_step + step;
      for (std::size_t i = 0; i < all.size() && ran(); ++i)
        if (all[i].measure_step != nullptr)
          row.set(i, of_model(all[i].whole, Scope::step,
                              [&](const Measured& of) { return all[i].measure_step(of, step); }));
    }
    return rows;
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

std::optional<double> Row::operator[](std::string_view key) const {
  return number(metric(metric_index(key)));
}

Value Row::metric(std::size_t index) const {
  const Metric& declared = all_metrics()[index];
  if (declared.derive != nullptr) return declared.derive(*this);
  return values_.empty() ? Value() : values_[index];
}

void Row::set(std::string_view key, Value value) {
  set(metric_index(key), value);
}

void Row::set(std::size_t index, Value value) {
  if (values_.empty()) values_.resize(all_metrics().size());
  values_[index] = value;
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
    identity.own_budget = has_own_budget(cell.composition);
    identity.own_total =
        cell.composition.allocation.spec != nullptr && cell.composition.allocation.own_total();
    identity.oracle = is_oracle(cell.composition);
    const std::vector<Row> of_cell = CellRows(outcome, outcome.cells[i], identity).make(scope);
    rows.insert(rows.end(), of_cell.begin(), of_cell.end());
  }
  return rows;
}

void price(Row& row, const std::string& machine, const std::optional<cost::Estimate>& estimate) {
  row.machine = machine;
  if (!estimate) return;
  const std::vector<Metric>& all = all_metrics();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].price != nullptr) row.set(i, all[i].price(*estimate));
}

namespace {

const std::vector<std::string> kNames{"all", "layer", "head", "step"};  // in the order of Scope

}  // namespace

const char* scope_name(Scope scope) {
  return kNames[static_cast<std::size_t>(scope)].c_str();
}

Scope parse_scope(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Scope>(i);
  usage_error("unknown scope '" + std::string(name) + "'", "", suggestion(name, kNames));
}

}  // namespace kvsim::analysis
