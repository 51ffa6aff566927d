#include "sim/loop/cell_caches.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/attention/prompt_pass.hpp"
#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"
#include "sim/feed/unit_driver.hpp"
#include "sim/loop/loop_plan.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/plan.hpp"
#include "sim/replay/table_files.hpp"
#include "traces/format/source.hpp"

namespace kvsim::sim {
namespace {

using Driver = UnitDriver<IndexStore>;

/// Tokens after which intervals that have ended are put away.
constexpr std::size_t kBlock = 32;

struct Unit {
  std::size_t first_lane = 0, n_lanes = 1;
  std::size_t budget = 0;
  Driver driver;

  ManagedCache<IndexStore>& cache() { return driver.caches().front(); }
};

MatrixView lanes_of(const MatrixView& all, std::size_t first, std::size_t n) {
  return all.data == nullptr ? MatrixView{}
                             : MatrixView{all.data + first * all.stride, n, all.cols, all.stride};
}

}  // namespace

struct CellCaches::State {
  struct Layer {
    std::vector<Unit> units;
    std::vector<Arrived> arrived;  ///< per unit, of the latest token
    std::vector<double> mass;
    std::size_t next = 0;  ///< position of the token that follows
  };

  State(trace::Header prompt, CellCachesRequest asked)
      : source(std::move(prompt)), sequence(source), length(asked.length) {
    loop.cells = {std::move(asked.cell)};
    loop.seed = request.seed = prompt_seed(sequence, asked.seed);
    loop.threads = request.threads = asked.threads;
    request.cells = loop.cells;
  }

  const policy::Composition& composition() const { return request.cells.front().composition; }
  const trace::Model& model() const { return sequence.model(); }
  std::size_t prompt() const { return sequence.prompt_length(); }

  void plan_cell() {
    const policy::Composition& asked = composition();
    if (const std::string why = refusal(asked); !why.empty())
      usage_error(why, asked.name, "kvsim evaluate runs it.");
    if (prompt() > length)
      usage_error("a prompt of " + std::to_string(prompt()) + " tokens; the cache sees " +
                      std::to_string(length) + " at most",
                  asked.name);
    const LoopPlan::LoopCellPlan in_loop = plan_loop(sequence, loop).cells.front();
    if (!in_loop.refused.empty()) usage_error(in_loop.refused);
    prefill = in_loop.prefill;
    plan = outline(sequence, request);
    require_planned();
  }

  void require_planned() const {
    if (!plan.cells.front().skipped.empty()) usage_error(plan.cells.front().skipped);
  }

  std::uint64_t first_query() const {
    const policy::Needs of_allocation = composition().allocation.needs();
    if (plan.needs.queries || of_allocation.queries) return 0;
    std::uint64_t first = sequence.first_measured();
    for (const EvictionGroup& group : plan.eviction_groups)
      first = std::min<std::uint64_t>(first, first_prompt_row(sequence, group.requirement.rows));
    const std::uint64_t measured =
        AllocationPass(sequence, request, plan).work() / model().n_layers / model().n_q_heads;
    return std::min(first, prompt() - measured);
  }

  /// The units of a layer, whose policies have seen nothing yet; or where another cache of the prompt has the
  /// same policy, with the policies of its units.
  std::vector<Unit> units_of(std::uint32_t layer, const State* ranked) const {
    const EvictionGroup& group = plan.eviction_groups.front();
    const std::uint32_t n_lanes = group.layer_unit ? model().n_kv_heads : 1;
    std::vector<Unit> units;
    for (std::uint32_t lane = 0; lane < model().n_kv_heads; lane += n_lanes) {
      const policy::CacheUnit unit = cache_unit(model(), layer, lane, n_lanes, request.seed, request.tables);
      const std::shared_ptr<policy::Eviction> eviction =
          ranked != nullptr ? ranked->layers[layer].units[units.size()].driver.shared_eviction()
                            : group.eviction->make_eviction(unit);
      units.push_back({lane, n_lanes, plan.cells.front().lane_budget[layer * model().n_kv_heads + lane],
                       Driver(*group.eviction, eviction, unit, prompt(), length)});
    }
    return units;
  }

  /// A layer's units, which are ranked if these subscriptions are replayed, or with those of `ranked`.
  void begin_layer(std::uint32_t number, const State* ranked, std::vector<Subscription>& subscriptions) {
    Layer& layer = layers[number];
    layer.units = units_of(number, ranked);
    if (prefill == Prefill::stream || ranked != nullptr) return;
    for (Unit& unit : layer.units)
      subscriptions.push_back(
          {&unit.driver.eviction(), unit.first_lane, unit.n_lanes, plan.eviction_groups.front().requirement});
  }

  void start_layer(Layer& layer) const {
    layer.arrived.clear();
    for (Unit& unit : layer.units) {
      layer.arrived.push_back({unit.first_lane, unit.n_lanes, 0, {}});
      start(unit);
    }
  }

  void start(Unit& unit) const {
    unit.driver.caches().clear();
    unit.driver.start(0, unit.budget, length, false);
  }

  void rewind_positions() {
    for (Layer& layer : layers) layer.next = prefill == Prefill::dense ? prompt() : 0;
  }

  Layer& begun(std::size_t layer) {
    if (layer >= layers.size()) bug("no such layer, or its caches have not begun", composition().name);
    return layers[layer];
  }

  Token of_unit(const Unit& unit, const Token& token) const {
    const std::size_t group = model().group();
    return {token.position, lanes_of(token.keys, unit.first_lane, unit.n_lanes),
            lanes_of(token.values, unit.first_lane, unit.n_lanes),
            lanes_of(token.queries, unit.first_lane * group, unit.n_lanes * group), token.token_class};
  }

  trace::HeaderSource source;
  trace::Sequence sequence;
  std::size_t length;
  LoopRequest loop;
  Request request;
  Plan plan;
  Prefill prefill = Prefill::dense;
  std::vector<Layer> layers;
};

std::string CellCaches::refusal(const policy::Composition& composition) {
  const policy::Needs needs = composition.needs();
  if (composition.representation)
    return composition.representation->spec->name + " changes how tokens are stored; this cache evicts";
  if (composition.selection)
    return composition.selection->spec->name + " changes which tokens are read; this cache evicts";
  if (needs.surprises)
    return "needs how probable each token is, which evaluate knows and this cache does not";
  if (needs.second_pass)
    return "needs a second pass of the model over the prompt, which evaluate makes and this cache does not";
  return "";
}

CellCaches::CellCaches(trace::Header prompt, CellCachesRequest request)
    : state_(std::make_unique<State>(std::move(prompt), std::move(request))) {
  state_->plan_cell();
}

CellCaches::~CellCaches() = default;

Prefill CellCaches::prefill() const {
  return state_->prefill;
}

std::uint64_t CellCaches::budget_tokens() const {
  return state_->plan.cells.front().budget_tokens;
}

std::uint64_t CellCaches::first_query() const {
  return state_->first_query();
}

void CellCaches::begin(const trace::Source& source, Progress& progress) {
  CellCaches* const alone[] = {this};
  if (const std::string refused = begin_together(alone, source, progress).front(); !refused.empty())
    usage_error(refused);
}

std::vector<std::string> CellCaches::begin_together(std::span<CellCaches* const> caches,
                                                    const trace::Source& source, Progress& progress) {
  const trace::Sequence whole(source);
  const TableFiles files(whole);
  const State& first = *caches.front()->state_;
  Request request = first.request;
  request.tables = &files;
  request.cells.clear();
  for (const CellCaches* each : caches) {
    const Request& own = each->state_->request;
    if (own.seed != request.seed || each->state_->length != first.length)
      bug("have another prompt or length", each->state_->composition().name);
    request.cells.push_back(own.cells.front());
  }
  Plan plan = outline(whole, request);
  Workers workers(request.threads);
  AllocationPass allocation_pass(whole, request, plan);
  allocation_pass.run(workers, progress);
  split_budgets(whole, request, allocation_pass, plan, first.length);

  std::vector<std::string> refused;
  std::vector<State*> begun;
  std::vector<const State*>
      ranked;  // for each that has begun: the first with the same policy, if it is another
  std::map<const EvictionGroup*, const State*> first_of;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    refused.push_back(plan.cells[i].skipped);
    if (!refused.back().empty()) continue;
    State& state = *caches[i]->state_;
    state.request.tables = &files;
    state.plan = outline(whole, state.request);
    state.plan.cells = {plan.cells[i]};
    state.layers = std::vector<State::Layer>(whole.model().n_layers);
    const auto group = std::ranges::find_if(plan.eviction_groups, [&](const EvictionGroup& each) {
      return std::ranges::find(each.cells, i) != each.cells.end();
    });
    const auto [known, is_first] = first_of.try_emplace(&*group, &state);
    begun.push_back(&state);
    ranked.push_back(is_first ? nullptr : known->second);
  }
  workers.run(whole.model().n_layers, [&](std::size_t index) {
    const auto number = static_cast<std::uint32_t>(index);
    std::vector<Subscription> subscriptions;
    for (std::size_t i = 0; i < begun.size(); ++i) begun[i]->begin_layer(number, ranked[i], subscriptions);
    if (!subscriptions.empty())
      replay_prompt(GroupTensors(whole, {number, 0, whole.model().n_kv_heads}, plan.needs), subscriptions,
                    progress);
    for (State* state : begun) state->start_layer(state->layers[index]);
  });
  for (State* state : begun) {
    state->request.tables = nullptr;
    state->rewind_positions();
  }
  return refused;
}

void CellCaches::rewind() {
  for (State::Layer& layer : state_->layers)
    for (Unit& unit : layer.units) state_->start(unit);
  state_->rewind_positions();
}

std::span<const policy::Position> CellCaches::slots(std::size_t layer, std::size_t lane) const {
  for (Unit& unit : state_->begun(layer).units)
    if (lane >= unit.first_lane && lane < unit.first_lane + unit.n_lanes)
      return unit.cache().residents.slots();
  bug("no such lane", state_->composition().name);
}

bool CellCaches::decodes(std::size_t layer) const {
  std::vector<Unit>& units = state_->begun(layer).units;
  return std::any_of(units.begin(), units.end(), [](Unit& unit) { return unit.cache().decoder != nullptr; });
}

bool CellCaches::needs_weights() const {
  return state_->composition().eviction.needs().decode_rows;
}

const std::vector<CellCaches::Arrived>& CellCaches::admit(std::size_t layer, const Token& token) {
  State::Layer& state = state_->begun(layer);
  const auto position = static_cast<std::size_t>(token.position);
  if (position >= state_->length)
    usage_error(
        "the text has reached " + std::to_string(state_->length) + " tokens, the most that the cache sees",
        state_->composition().name);
  if (position != state.next++) bug("tokens come in order of position", state_->composition().name);
  const auto step =
      static_cast<std::uint32_t>(position < state_->prompt() ? 0 : position + 1 - state_->prompt());
  for (std::size_t i = 0; i < state.units.size(); ++i) {
    Unit& unit = state.units[i];
    if (position % kBlock == 0) unit.cache().residents.forget_ended();
    const std::span<const std::size_t> victims =
        unit.driver.admit(unit.cache(), state_->of_unit(unit, token), step);
    state.arrived[i].victims.assign(victims.begin(), victims.end());
    state.arrived[i].own_slot = unit.cache().own_slot;
  }
  return state.arrived;
}

void CellCaches::ask_again(std::size_t layer, const Token& token) {
  State::Layer& state = state_->begun(layer);
  for (Unit& unit : state.units) unit.driver.ask_again(unit.cache(), state_->of_unit(unit, token));
}

void CellCaches::attended(std::size_t layer, const Token& token, std::span<const float> weights) {
  State::Layer& state = state_->begun(layer);
  const std::size_t group = state_->model().group();
  for (Unit& unit : state.units) {
    SlotAttention to_slots;
    if (unit.driver.needs_rows()) {
      const std::size_t rows = unit.n_lanes * group, slots = unit.cache().residents.slots().size();
      if (weights.size() < rows * slots) bug("fewer weights than slots", state_->composition().name);
      // With sinks, which have the rest, the weights are what a cache computes.
      const bool sinks = !state_->model().sinks.empty();
      state.mass.assign(rows, sinks ? 1 : 0);
      for (std::size_t row = 0; row < rows && !sinks; ++row)
        for (const float weight : weights.subspan(row * slots, slots))
          state.mass[row] += static_cast<double>(weight);
      to_slots = {{weights.data(), rows, slots, slots}, state.mass};
      weights = weights.subspan(rows * slots);
    }
    if (unit.cache().decoder) unit.driver.attended(unit.cache(), state_->of_unit(unit, token), to_slots);
  }
  if (!weights.empty()) bug("more weights than slots", state_->composition().name);
}

}  // namespace kvsim::sim
