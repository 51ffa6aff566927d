#include "sim/loop/loop_plan.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/loop/chunked_prompt.hpp"
#include "sim/loop/loop_run.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/budget.hpp"
#include "sim/replay/plan.hpp"

namespace kvsim::sim {
namespace {

/// Whether the allocation reads the prompt of the whole model before a budget is split.
bool measures_prompt(const policy::Part& allocation, const trace::Sequence& sequence) {
  return allocation.spec->uses_scores() || allocation.spec->uses_losses() ||
         allocation.make_allocation()->profile(cache_unit(sequence.model(), 0, 0, 1, 0)) != nullptr;
}

/// Returns the most tokens that prompt, questions and answers have together.
std::size_t most_tokens(const trace::Sequence& sequence, const LoopRequest& request) {
  std::size_t tokens = sequence.length();
  for (const LoopTurn& turn : request.turns)
    tokens += turn.question.size() + std::max<std::size_t>(turn.answer.size(), request.max_new_tokens);
  return tokens;
}

LoopPlan::LoopCellPlan plan_cell(const trace::Sequence& sequence, const LoopRequest& request,
                                 const policy::Composition& composition) {
  const policy::Part& eviction = composition.eviction;
  const std::string name = eviction.spec->name + ": ";
  if (eviction.spec->is_oracle())
    return {name + "knows the future, which a running model does not have; kvsim replay runs it"};
  if (reads_full_rows(eviction))
    return {name +
            "reads attention on evicted tokens (feedback=raw), which a running model does not compute"};
  if (composition.needs().second_pass && sequence.model().has_windows())
    return {
        composition.name + ": " +
        "needs a second pass of the model over the prompt, whose tokens have left the layers with a window"};
  const std::string cell = composition.name + ": ";
  LoopPlan::LoopCellPlan plan;
  const auto probe = eviction.make_eviction(cache_unit(
      sequence.model(), 0, 0, eviction.layer_unit() ? sequence.model().n_kv_heads : 1, request.seed));
  if (const std::string why = chunk_crossing(sequence, composition, most_tokens(sequence, request));
      !why.empty())
    return {cell + why};
  if (probe->streams_prompt()) {
    plan.prefill = Prefill::stream;
  } else if (request.prefill_tokens > 0) {
    plan.prefill = Prefill::chunked;
    plan.refused = chunk_refusal(eviction, sequence, most_tokens(sequence, request));
  }
  if (request.drafts()) {
    if (plan.prefill != Prefill::dense)
      plan.refused = cell +
                     "a draft begins with what the full cache has made of the prompt, and this cache "
                     "processes the prompt itself";
    if (composition.representation && stores_pairs(sequence.model(), *composition.representation, 1))
      plan.refused = cell + composition.representation->spec->name +
                     " stores two layers together, and drafts are taken back layer by layer";
  }
  if (request.assembled && (plan.prefill != Prefill::dense || request.drafts()))
    plan.refused =
        cell + "a prompt that is put together of documents is there at once, and " +
        (request.drafts() ? "drafts begin with the full cache's" : "this cache processes it itself");
  if (composition.needs().surprises &&
      (plan.prefill != Prefill::dense || request.drafts() || request.assembled))
    plan.refused = cell +
                   "ranks by what the full cache's run of the prompt, and then this cache, has predicted, "
                   "which neither drafts nor prompts in parts have";
  if (composition.selection && plan.prefill != Prefill::dense)
    plan.refused =
        cell +
        "a selection chooses from what is kept of a prompt that was processed with full attention, "
        "and this cache processes the prompt itself";
  if (composition.selection && request.positions != LoopPositions::text)
    plan.refused = cell + "the index of " + composition.selection->spec->name +
                   " has keys as they are rotated in the text; --positions text runs it";
  if (composition.representation && plan.prefill != Prefill::dense)
    plan.refused = cell +
                   "a representation stores what is kept of a prompt that was processed with "
                   "exact numbers, and this cache processes the prompt itself";
  if (composition.representation && request.positions != LoopPositions::text)
    plan.refused = cell + composition.representation->spec->name +
                   " stores keys as they are rotated in the text; --positions text runs it";
  if (plan.prefill == Prefill::dense || !plan.refused.empty() ||
      !measures_prompt(composition.allocation, sequence))
    return plan;
  plan.profiled = request.profile_dense;
  if (!request.profile_dense)
    plan.refused = cell + composition.allocation.spec->name +
                   " measures the whole prompt before anything is evicted, and this cache evicts while the "
                   "prompt arrives; with --profile dense a pass of its own measures it";
  return plan;
}

void check_turns(const trace::Sequence& sequence, const LoopRequest& request) {
  if (request.turns.empty()) bug("a closed loop without a turn");
  if (!request.turns.front().question.empty() || !request.turns.front().evidence.empty())
    bug("the first turn of a closed loop is the sequence's own");
  const bool known = sequence.first_measured() < sequence.prompt_length();
  if (request.turns.size() > 1 && known && request.protocol == TurnProtocol::requests)
    usage_error("the prompt holds the first question, so the others cannot be asked in its place",
                "cut prompt", "Cut at the question, or let the turns follow each other.");
  for (std::size_t turn = 0; turn + 1 < request.turns.size(); ++turn)
    if (request.turns[turn].answer.empty() && request.protocol != TurnProtocol::requests)
      usage_error("question " + std::to_string(turn + 1) + " has no answer that the next could follow",
                  "turns");
  for (std::size_t turn = 1; turn < request.turns.size(); ++turn)
    if (request.turns[turn].question.empty()) bug("a turn without a question");
}

}  // namespace

LoopPlan plan_loop(const trace::Sequence& sequence, const LoopRequest& request) {
  check_turns(sequence, request);
  LoopPlan plan;
  for (const Cell& cell : request.cells) plan.cells.push_back(plan_cell(sequence, request, cell.composition));
  return plan;
}

void LoopRun::choose_cells() {
  request_.seed = prompt_seed(sequence_, asked_.seed);
  request_.threads = asked_.threads;
  request_.tables = asked_.tables;
  first_.cells.resize(asked_.cells.size());
  for (std::size_t i = 0; i < asked_.cells.size(); ++i) {
    first_.cells[i].skipped = loop_plan_.cells[i].refused;
    first_.cells[i].prefill = loop_plan_.cells[i].prefill;
    first_.cells[i].profiled = loop_plan_.cells[i].profiled;
    if (!first_.cells[i].skipped.empty()) continue;
    request_.cells.push_back(asked_.cells[i]);
    cell_of_request_.push_back(i);
  }
  if (request_.cells.empty())
    usage_error(first_.cells.empty() ? "no cell to evaluate" : first_.cells[0].skipped);
}

void LoopRun::make_streams() {
  bool dense = false, own = false;
  for (std::size_t cell = 0; cell < request_.cells.size(); ++cell) {
    outcome_of(cell).skipped = plan_.cells[cell].skipped;
    outcome_of(cell).budget_tokens = plan_.cells[cell].budget_tokens;
    if (!plan_.cells[cell].skipped.empty()) continue;
    (prefill_of(cell) == Prefill::dense ? dense : own) = true;
  }
  if (!own) dense = true;  // there is a reference even if no cell can run
  for (const LoopMode mode : asked_.modes)
    for (const Script& script :
         scripts_of(asked_, mode, fed_at_first(verifier_->sequence_, verifier_->tokens_))) {
      if (dense) add_streams(mode, script, Prefill::dense);
      if (own) add_streams(mode, script, Prefill::stream);
    }
  first_reference_of_own_ = dense ? asked_.modes.size() : 0;
}

void LoopRun::add_streams(LoopMode mode, const Script& script, Prefill prefill) {
  std::size_t reference = 0;
  if (!drafts()) reference = add_stream(mode, script, prefill, true, 0, streams_.size());
  for (std::size_t cell = 0; cell < request_.cells.size(); ++cell)
    if (plan_.cells[cell].skipped.empty() && plan_.cells[cell].same_as == Plan::kNone &&
        (prefill == Prefill::dense) == (prefill_of(cell) == Prefill::dense)) {
      if (drafts()) {  // what was verified, and so the full cache, differs from cell to cell
        reference = verifier_->add_stream(mode, script, prefill, true, 0, verifier_->streams_.size());
        drafts_.push_back({reference, streams_.size()});
        if (helper_ != nullptr)
          helper_->drafts_.push_back(
              {reference, helper_->add_stream(mode, script, prefill, false, 0, reference)});
      }
      add_stream(mode, script, prefill_of(cell), false, cell, reference);
    }
}

std::size_t LoopRun::add_stream(LoopMode mode, const Script& script, Prefill prefill, bool is_reference,
                                std::size_t cell, std::size_t reference) {
  const std::size_t added = streams_.size();
  Stream& stream = streams_.emplace_back();
  stream.mode = mode;
  stream.prefill = prefill;
  stream.is_reference = is_reference;
  stream.cell = cell;
  stream.reference = reference;
  stream.leader = leader_of(stream);
  stream.script = script;
  stream.text = script.front().fed;
  // Before any other token the prompt's run has predicted the first.
  if (ranks_surprises(stream) && stream.text.front() == tokens_[first_fed_])
    stream.surprises = {sequence_.surprise(first_fed_)};
  stream.turns.resize(script.size());
  const bool reads_exact = is_reference && asked_.assembled;
  if (is_reference && kept_references() != nullptr && !kept_references()->empty()) {
    const auto number = static_cast<std::size_t>(
        std::ranges::count_if(streams_, [](const Stream& other) { return other.is_reference; }) - 1);
    ReferenceRun& known = (*kept_references())[number];
    stream.done = true;
    stream.text = known.text;
    stream.turns = known.turns;
    stream.predicted = std::move(known.predicted);
    return added;
  }
  stream.first_own = prefill == Prefill::dense && !reads_exact ? first_fed_ : 0;
  const std::size_t rows = length_ - stream.first_own;
  for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer) {
    OwnRows& own = stream.own.emplace_back();
    own.keys = TokenRows(config_.n_kv_heads, rows, config_.head_dim);
    own.values = TokenRows(config_.n_kv_heads, rows, config_.value_dim());
    if (prefill == Prefill::chunked) own.queries = TokenRows(config_.n_heads, prompt_, config_.head_dim);
    if (stream.verifies() || drafts_apart()) own.queries = TokenRows(config_.n_heads, rows, config_.head_dim);
    if (reads_exact) take_exact(layer, own);
  }
  return added;
}

void LoopRun::take_exact(std::uint32_t layer, OwnRows& own) const {
  const auto take = [&](trace::Tensor tensor, std::size_t dim, TokenRows& to) {
    std::vector<float> rows(config_.n_kv_heads * prompt_ * dim);
    for (std::uint32_t head = 0; head < config_.n_kv_heads; ++head)
      asked_.assembled->exact->read(tensor, layer, head, 0, prompt_,
                                    std::span(rows).subspan(head * prompt_ * dim, prompt_ * dim));
    for (std::size_t token = 0; token < prompt_; ++token)
      to.set(token, {rows.data() + token * dim, config_.n_kv_heads, dim, prompt_ * dim});
  };
  take(trace::Tensor::key, config_.head_dim, own.keys);
  take(trace::Tensor::value, config_.value_dim(), own.values);
}

std::size_t LoopRun::leader_of(const Stream& stream) const {
  const auto first = std::find_if(streams_.begin(), streams_.end(), [&](const Stream& other) {
    return other.prefill == stream.prefill && other.is_reference == stream.is_reference &&
           other.cell == stream.cell;
  });
  return static_cast<std::size_t>(first - streams_.begin());
}

void LoopRun::start_cache(std::size_t number, ReplayUnit& unit, std::size_t stream) {
  const std::size_t cell = streams_[stream].cell, lane = number * config_.n_kv_heads + unit.first_lane();
  unit.start(stream, plan_.cells[cell].lane_budget[lane], asked_.decisions);
  if (asks_again()) return;  // begin_parts() does it then
  layers_[number].represented->store(unit, unit.caches().back(), cell);
  layers_[number].selected->begin(unit, unit.caches().back(), cell);
}

void LoopRun::read_prompt() {
  layers_.resize(config_.n_layers);
  workers_.run(config_.n_layers, [&](std::size_t layer) {
    layers_[layer].tensors = std::make_unique<GroupTensors>(
        sequence_, LaneGroup{static_cast<std::uint32_t>(layer), 0, config_.n_kv_heads}, plan_.needs);
  });
}

void LoopRun::begin_caches() {
  read_prompt();
  workers_.run(config_.n_layers, [&](std::size_t index) {
    Layer& layer = layers_[index];
    for (const EvictionGroup& eviction_group : plan_.eviction_groups) {
      if (prefill_of(eviction_group.cells.front()) == Prefill::chunked) continue;
      for (ReplayUnit& unit :
           replay_units(eviction_group, *layer.tensors, request_.seed, request_.tables, {}, length_))
        layer.shared.push_back(std::move(unit));
    }
    layer.represented =
        std::make_unique<RepresentedUnits>(plan_, *layer.tensors, request_.seed, request_.tables);
    layer.selected = std::make_unique<SelectedUnits>(plan_, *layer.tensors, request_.seed, request_.tables);
    std::vector<Subscription> subscriptions;
    for (ReplayUnit& unit : layer.shared) {
      layer.represented->add(unit);
      layer.selected->add(unit);
      if (!unit.eviction_group().streams) subscriptions.push_back(unit.subscription());
    }
    layer.represented->subscribe(subscriptions);
    layer.selected->subscribe(subscriptions);
    replay_prompt(*layer.tensors, subscriptions, progress_);
    layer.represented->finish_pairs();
    layer.selected->read_leaders();
    for (ReplayUnit& unit : layer.shared) {
      for_each_stream_of(unit.eviction_group(),
                         [&](std::size_t stream) { start_cache(index, unit, stream); });
      layer.units.push_back({&unit, unit.first_lane(), unit.n_lanes(), {}, {}});
    }
  });
}

}  // namespace kvsim::sim
