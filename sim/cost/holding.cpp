#include "sim/cost/holding.hpp"

#include <string>

#include "sim/base/error.hpp"
#include "sim/cost/checked.hpp"
#include "sim/feed/lane_budgets.hpp"
#include "sim/replay/table_files.hpp"

namespace kvsim::cost {
namespace {

/// The files of shares and scores that allocations read.
class MatrixTables final : public policy::Tables {
 public:
  std::vector<float> row(std::string_view file, std::string_view, int, int) const override {
    bug("an allocation asks for a dataset", std::string(file));
  }
  std::vector<std::vector<double>> matrix(std::string_view file) const override {
    return sim::read_matrix(std::string(file));
  }
};

constexpr const char* kTokens = "all tokens held";
/// The most lanes with budgets of their own; real models have a few hundred.
constexpr std::uint64_t kMostLanes = std::uint64_t{1} << 24;

void check_buildable(const policy::Part& eviction) {
  if (eviction.spec->is_oracle())
    usage_error("knows the future: it cannot be built, so it has no cost", eviction.spec->name,
                "Ask for the cost of a policy that runs.");
}

/// Throws Error(usage) where the model's heads do not suit the representation.
void check_representation(const policy::Composition& composition, const Model& model) {
  if (!composition.representation) return;
  if (model.latent.rank != 0)
    usage_error("stores keys and values, and " + model.name + " caches a latent of both",
                composition.representation->spec->name, "Take a policy without a representation.");
  policy::CacheUnit unit;
  unit.n_layers = static_cast<int>(model.cached_layers());
  unit.n_lanes = composition.layer_unit() ? static_cast<int>(model.kv_heads) : 1;
  unit.group = static_cast<int>(model.query_heads / model.kv_heads);
  unit.head_dim = static_cast<int>(model.head_dim);
  unit.value_dim = static_cast<int>(model.value_dim);
  (void)composition.representation->make_representation(unit);
}

policy::CostShape shape_of(const policy::Composition& composition, const Model& model, std::uint64_t prompt,
                           std::uint64_t budget) {
  policy::CostShape shape;
  shape.n_layers = model.cached_layers();
  shape.query_heads = model.query_heads;
  shape.kv_heads = model.kv_heads;
  shape.head_dim = model.head_dim;
  shape.value_dim = model.value_dim;
  shape.hidden = model.hidden;
  shape.prompt = prompt;
  shape.budget = composition.eviction.spec->own_budget() ? std::max(budget, prompt) : budget;
  return shape;
}

/// Merges neighbours that hold the same into one group.
void append(std::vector<EqualLanes>& groups, const EqualLanes& lane) {
  if (!groups.empty() && groups.back().after_prompt == lane.after_prompt &&
      groups.back().limit == lane.limit && groups.back().counted == lane.counted &&
      groups.back().hits == lane.hits)
    groups.back().lanes += lane.lanes;
  else
    groups.push_back(lane);
}

void append(std::vector<EqualLayers>& groups, EqualLayers layer) {
  if (!groups.empty() && groups.back().lanes == layer.lanes && groups.back().window == layer.window)
    groups.back().layers += layer.layers;
  else
    groups.push_back(std::move(layer));
}

/// What `lane` says of each lane, layer-major.
template <class Lane>
Holding lane_by_lane(const Model& model, std::size_t heads, Lane lane) {
  Holding out;
  std::size_t number = 0;
  for (const auto& [layers, window] : model.window_runs())
    for (std::uint64_t i = 0; i < layers; ++i) {
      EqualLayers group{1, {}, window};
      for (std::size_t head = 0; head < heads; ++head) append(group.lanes, lane(number++));
      append(out.layers, std::move(group));
    }
  return out;
}

/// Returns how often each of `kv_heads` lanes is stored.
std::uint64_t copies(std::uint64_t stored_kv_heads, std::uint64_t kv_heads) {
  if (stored_kv_heads == 0 || stored_kv_heads % kv_heads != 0)
    usage_error(std::to_string(stored_kv_heads) + " stored KV heads are no multiple of " +
                    std::to_string(kv_heads) + ", the heads that hold different tokens",
                "stored KV heads");
  return stored_kv_heads / kv_heads;
}

/// Computes what lanes with these budgets hold under the eviction's rule.
struct Rule {
  std::uint64_t prompt = 0, overshoot = 0;
  bool appends = false, streams = false;

  EqualLanes lane(std::uint64_t budget, std::uint64_t lanes) const {
    if (budget == kNoLimit) return {lanes, prompt, kNoLimit};
    const std::uint64_t limit = checked_sum("a budget", budget, overshoot);
    return {lanes, std::min(prompt, streams ? limit : budget), appends ? kNoLimit : limit};
  }
};

/// Returns layers all of whose lanes hold the same, split where windows change.
Holding alike(const Model& model, const EqualLanes& lane) {
  Holding out;
  for (const auto& [layers, window] : model.window_runs()) out.layers.push_back({layers, {lane}, window});
  return out;
}

/// The layers that a budget is split over.
sim::LaneShape lane_shape(const Model& model, std::uint64_t prompt, std::uint64_t budget,
                          std::optional<double> share) {
  sim::LaneShape shape{model.cached_layers(), model.kv_heads, prompt};
  const std::vector<WindowRun> runs = model.window_runs();
  const auto held_in = [&](const WindowRun& run) {
    return run.window == 0 ? prompt : std::min(prompt, run.window);
  };
  if (std::ranges::all_of(runs, [&](const WindowRun& run) { return held_in(run) == prompt; })) return shape;
  for (const WindowRun& run : runs) {
    const std::size_t held = held_in(run);
    // The nudge is that of a replay's budgets.
    const auto of_share = [&] { return static_cast<std::size_t>(*share * static_cast<double>(held) + 1e-9); };
    shape.held.insert(shape.held.end(), run.layers, held);
    shape.budgets.insert(shape.budgets.end(), run.layers, share ? of_share() : budget);
  }
  return shape;
}

/// Limits lanes to the window of their layer: tokens behind it are freed, whatever the policy.
Holding windowed(Holding holding) {
  for (EqualLayers& group : holding.layers)
    for (EqualLanes& lane : group.lanes) {
      lane.after_prompt = group.within_window(lane.after_prompt);
      lane.limit = group.within_window(lane.limit);
    }
  return holding;
}

}  // namespace

std::uint64_t EqualLanes::at(std::uint64_t step) const {
  return step == 0 ? after_prompt : std::min(after_prompt + step, limit);
}

LaneTokens EqualLanes::tokens(std::uint64_t step, std::uint64_t most) const {
  const std::uint64_t all = std::min(at(step), most), appended = std::min(step, all);
  return {all - appended, appended};
}

std::uint64_t EqualLayers::tokens(std::uint64_t step) const {
  std::uint64_t sum = 0;
  for (const EqualLanes& group : lanes)
    sum = checked_sum(kTokens, sum, checked_product(kTokens, group.lanes, group.at(step)));
  return sum;
}

std::uint64_t EqualLayers::longest(std::uint64_t step) const {
  std::uint64_t most = 0;
  for (const EqualLanes& group : lanes) most = std::max(most, group.at(step));
  return most;
}

std::uint64_t Holding::tokens(std::uint64_t step) const {
  std::uint64_t sum = 0;
  for (const EqualLayers& group : layers)
    sum = checked_sum(kTokens, sum, checked_product(kTokens, group.layers, group.tokens(step)));
  return sum;
}

bool splits_by_trace(const policy::Composition& composition) {
  const policy::Part& allocation = composition.allocation;
  const policy::Needs needs = allocation.needs();
  return allocation.spec->uses_scores() || needs.prompt_rows != policy::RowNeed::none || needs.keys ||
         needs.values || needs.queries;
}

Holding whole_holding(const Model& model, std::uint64_t stored_kv_heads, std::uint64_t tokens) {
  return alike(model, {stored_kv_heads, tokens, kNoLimit});
}

Holding full_holding(const Model& model, std::uint64_t stored_kv_heads, std::uint64_t prompt) {
  return windowed(whole_holding(model, stored_kv_heads, prompt));
}

void check_holding(const Model& model, std::uint64_t stored_kv_heads, const Holding& holding) {
  std::uint64_t layers = 0;
  std::vector<WindowRun> runs;
  for (const EqualLayers& group : holding.layers) {
    if (runs.empty() || runs.back().window != group.window) runs.push_back({0, group.window});
    runs.back().layers += group.layers;
    std::uint64_t lanes = 0;
    for (const EqualLanes& alike : group.lanes) lanes += alike.lanes;
    if (lanes != stored_kv_heads || group.layers == 0)
      bug("a layer holds " + std::to_string(lanes) + " lanes of " + std::to_string(stored_kv_heads),
          model.name);
    layers += group.layers;
  }
  if (layers != model.cached_layers())
    bug(std::to_string(layers) + " layers are held of " + std::to_string(model.cached_layers()), model.name);
  if (runs != model.window_runs()) bug("the windows held are not those of the layers", model.name);
}

Holding rule_holding(const policy::Composition& composition, const Model& model,
                     std::uint64_t stored_kv_heads, std::uint64_t prompt, std::uint64_t generate,
                     std::uint64_t budget, std::optional<double> share) {
  const policy::Part &eviction = composition.eviction, &allocation = composition.allocation;
  check_buildable(eviction);
  const std::uint64_t context = checked_sum("the context", prompt, generate);
  const std::uint64_t stored = stored_kv_heads == 0 ? model.kv_heads : stored_kv_heads;
  const std::uint64_t times = copies(stored, model.kv_heads);
  const policy::Cost cost = eviction.cost(shape_of(composition, model, prompt, budget));
  const Rule rule{prompt, eviction.overshoot(), cost.appends, cost.streams};
  if (eviction.spec->own_budget()) return full_holding(model, stored, prompt);

  if (budget < prompt) sim::check_floor(composition, budget, "the budget");
  if (budget > context)
    usage_error("a budget of " + std::to_string(budget) + " tokens is above the context of " +
                    std::to_string(context),
                composition.name, "Give at most prompt + generated tokens.");
  sim::LaneShape shape = lane_shape(model, prompt, budget, share);
  for (const std::size_t in_layer : shape.budgets)
    if (in_layer < prompt) sim::check_floor(composition, in_layer, "the budget of a layer with a window");
  // There is nothing to split if every lane holds its prompt.
  if (shape.held.empty() && (sim::nothing_to_split(composition, shape, budget) || allocation.spec->even() ||
                             splits_by_trace(composition)))
    return windowed(alike(model, rule.lane(std::max<std::uint64_t>(budget, composition.floor()), stored)));

  const std::uint64_t lanes = checked_product("the lanes", model.cached_layers(), model.kv_heads);
  if (lanes > kMostLanes)
    usage_error(
        "splits a budget over " + std::to_string(lanes) + " lanes, more than " + std::to_string(kMostLanes),
        composition.name);
  checked_product("the budget", lanes, budget);

  const MatrixTables tables;
  std::vector<std::size_t> budgets;
  if (splits_by_trace(composition))
    for (const std::size_t in_layer : shape.budgets) budgets.insert(budgets.end(), model.kv_heads, in_layer);
  else
    budgets = sim::lane_budgets(composition, shape, budget, {.tables = &tables});
  return windowed(
      lane_by_lane(model, model.kv_heads, [&](std::size_t lane) { return rule.lane(budgets[lane], times); }));
}

Holding replayed_holding(const sim::Outcome& outcome, const sim::CellOutcome& cell, const Model& model,
                         std::uint64_t stored_kv_heads, std::uint64_t element_bits) {
  if (!cell.skipped.empty()) bug("a cell that was skipped holds nothing", cell.skipped);
  if (outcome.n_layers != model.cached_layers()) bug("the model is not that of the replay", model.name);
  const std::uint64_t times =
      copies(stored_kv_heads == 0 ? outcome.n_kv_heads : stored_kv_heads, outcome.n_kv_heads);
  return lane_by_lane(model, outcome.n_kv_heads, [&](std::size_t number) {
    const sim::LaneOutcome& lane = cell.lanes[number];
    const bool grew = lane.held_at_end == lane.kept_tokens + outcome.decode;
    EqualLanes held{times, lane.kept_tokens, grew ? kNoLimit : lane.held_at_end};
    if (lane.stored && 8 * outcome.token_bytes == element_bits * outcome.token_numbers)
      held.counted = CountedBits{lane.stored->kept_bits, lane.stored->held_bits};
    if (lane.read && lane.read->later_loaded_tokens > 0)
      held.hits = lane.read->hits / lane.read->later_loaded_tokens;
    return held;
  });
}

policy::Cost cost_of(const policy::Composition& composition, const Model& model, std::uint64_t prompt,
                     std::uint64_t budget) {
  check_buildable(composition.eviction);
  check_representation(composition, model);
  const policy::CostShape shape = shape_of(composition, model, prompt, budget);
  policy::Cost cost = combined(composition.eviction.cost(shape), composition.allocation.cost(shape));
  if (composition.representation) cost = combined(cost, composition.representation->cost(shape));
  cost.lanes_alike = composition.layer_unit();
  return cost;
}

}  // namespace kvsim::cost
