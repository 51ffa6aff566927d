#include "sim/replay/plan.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/feed/lane_budgets.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/idle_parts.hpp"
#include "traces/format/recorded_rows.hpp"

namespace kvsim::sim {
namespace {

/// Throws Error(usage) when the trace lacks token classes, probabilities or output weights that `needs` asks
/// for.
void check_contents(const trace::Sequence& sequence, const policy::Needs& needs, const std::string& who) {
  constexpr std::uint32_t kClasses = trace::kFlagSpecial | trace::kFlagPunctuation;
  if (needs.classes && (sequence.flags_known() & kClasses) != kClasses)
    usage_error("needs to know which tokens are special and which are punctuation; the trace does not say",
                who, "Captures made with a tokenizer do.");
  for (std::uint64_t position = 1; needs.surprises && position < sequence.recorded_prompt_length();
       ++position)
    if (std::isnan(sequence.surprise(position)))
      usage_error("needs how probable the model has found each token of the prompt; the trace does not say",
                  who, "Capture again with --prompt-logprobs.");
  if (needs.output_weights && !sequence.source().has_output_weights())
    usage_error("needs the output projection, which the trace does not store", who,
                "Capture again with --output-weights.");
}

/// Throws Error(usage) when the allocation splits by scores and the eviction streams the prompt: only an
/// eviction that ranks the whole prompt has scores.
void check_scores(const EvictionGroup& eviction_group, const policy::Composition& composition) {
  if (!eviction_group.streams || !composition.allocation.spec->uses_scores()) return;
  usage_error("splits by the scores of the prompt, and " + composition.eviction.spec->name +
                  " takes the prompt token by token",
              composition.name, "With prompt=rank it has scores.");
}

/// Throws Error(usage) when the trace lacks what the cell's allocation measures.
void check_allocation(const trace::Sequence& sequence, const policy::Composition& composition) {
  const policy::Part& part = composition.allocation;
  const auto profile = part.make_allocation()->profile(cache_unit(sequence.model(), 0, 0, 1, 0));
  if (!profile) return;
  check_contents(sequence, part.needs(), composition.name);
  row_requirement(sequence, *profile, composition.name);
  if (part.needs().queries) require_queries(sequence, sequence.prompt_length(), composition.name);
}

/// Whether another layer chooses for some layers of the model.
bool has_leaders(const trace::Model& model, const policy::Part& selection, std::uint32_t n_lanes,
                 std::uint64_t seed, const policy::Tables* tables) {
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
    if (selection.make_selection(cache_unit(model, layer, 0, n_lanes, seed, tables))->leader()) return true;
  return false;
}

/// Returns the group of a representation or a selection for units of `n_lanes` lanes. Throws Error(usage)
/// when the trace lacks what it needs, when its shape does not suit it, or when a calibration is not for it.
PartGroup make_part_group(const trace::Sequence& sequence, const policy::Part& part, std::uint32_t n_lanes,
                          std::uint64_t seed, const policy::Tables* tables) {
  PartGroup group{&part, part.needs(), {}};
  const std::string& name = part.spec->name;
  check_contents(sequence, group.needs, name);
  // Of a selection the first layers may observe less than the others.
  const trace::Model& model = sequence.model();
  const policy::CacheUnit unit = cache_unit(model, model.n_layers - 1, 0, n_lanes, seed, tables);
  if (part.spec->kind() == policy::Kind::representation) {
    if (model.values_in_keys)
      usage_error("stores keys and values apart, and latent attention caches a vector that is both", name);
    group.requirement = row_requirement(sequence, *part.make_representation(unit), name);
    group.crosses = stores_pairs(model, part, n_lanes);
  } else {
    group.requirement = row_requirement(sequence, *part.make_selection(unit), name);
    group.crosses = has_leaders(model, part, n_lanes, seed, tables);
  }
  if (group.needs.queries) require_queries(sequence, sequence.prompt_length(), name);
  require_measured_queries(sequence, name);
  return group;
}

/// Throws Error(usage) when the eviction needs attention that a cache with a representation or a selection
/// does not compute.
void check_rows(const policy::Composition& composition) {
  if (reads_full_rows(composition.eviction))
    usage_error("reads attention on evicted tokens (feedback=raw), which a cache that " +
                    std::string(composition.representation ? "stores other numbers" : "reads a part") +
                    " does not compute",
                composition.name);
}

/// Throws Error(usage) where layers that depend on each other would hold other tokens.
void check_crossing(const trace::Model& model, const policy::Composition& composition,
                    const PartGroup& group) {
  const policy::PolicySpec& eviction = *composition.eviction.spec;
  const std::string& part = group.part->spec->name;
  const bool selects = group.part->spec->kind() == policy::Kind::selection;
  if (!group.crosses) return;
  const std::string crosses =
      selects ? "lets one layer choose for others" : "stores a token once for two layers";
  if (std::ranges::adjacent_find(model.layer_window, std::not_equal_to()) != model.layer_window.end())
    usage_error(crosses + ", which hold other tokens where only some have a sliding window", composition.name,
                "Leave +" + part + " out.");
  if (!eviction.keeps_all())
    usage_error(crosses + ", and " + eviction.name + " decides in each by itself which tokens stay",
                composition.name, "Write full+" + part + ".");
  if (selects && composition.representation)
    usage_error(
        crosses + " by keys as they come, and " + composition.representation->spec->name + " stores others",
        composition.name, "Write full+" + part + ".");
}

/// Returns the cell's budget of each layer. Throws Error(usage) when one is below the policy's floor.
std::vector<std::size_t> checked_budgets(const trace::Sequence& sequence, const Cell& cell) {
  std::vector<std::size_t> budgets = layer_budgets(cell.budget, sequence, cell.composition);
  for (std::uint32_t layer = 0; layer < budgets.size(); ++layer) {
    const std::size_t held = most_held(sequence.model(), layer, sequence.prompt_length());
    if (budgets[layer] >= held) continue;
    std::string named = "budget '" + cell.budget.text + "'";
    if (held < sequence.prompt_length())
      named += " in layer " + std::to_string(layer) + ", whose window holds " + std::to_string(held) + ",";
    check_floor(cell.composition, budgets[layer], named);
  }
  return budgets;
}

/// Returns what lanes can make of their budgets, on average.
double mean_budget(const trace::Model& model, const std::vector<std::size_t>& budgets) {
  std::size_t sum = 0;
  for (std::uint32_t layer = 0; layer < budgets.size(); ++layer)
    sum += most_held(model, layer, budgets[layer]);
  return static_cast<double>(sum) / static_cast<double>(budgets.size());
}

LaneShape lane_shape(const trace::Sequence& sequence, const std::vector<std::size_t>& budgets) {
  const trace::Model& model = sequence.model();
  LaneShape shape{model.n_layers, model.n_kv_heads, sequence.prompt_length()};
  std::vector<std::size_t> held;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
    held.push_back(held_tokens(model, layer, shape.prompt));
  if (std::ranges::all_of(held, [&](std::size_t n) { return n == shape.prompt; })) return shape;
  shape.held = std::move(held);
  shape.budgets = budgets;
  return shape;
}

}  // namespace

bool stores_pairs(const trace::Model& model, const policy::Part& representation, std::uint32_t n_lanes) {
  try {
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
      if (representation.make_representation(cache_unit(model, layer, 0, n_lanes, 0))->partner()) return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
  }
  return false;
}

std::string chunk_crossing(const trace::Sequence& sequence, const policy::Composition& composition,
                           std::size_t length) {
  const trace::Model& model = sequence.model();
  const auto& part = composition.representation ? composition.representation : composition.selection;
  std::size_t border = length;
  for (std::uint32_t layer = 0; model.chunked && part && layer < model.n_layers; ++layer)
    border = std::min(border, model.seen_until(layer, sequence.prompt_length() - 1, length));
  if (border == length) return {};
  return "at position " + std::to_string(border) +
         " the text passes into another chunk of the model's attention, where all that a layer holds leaves at "
         "once; evictions alone, and full, can do that";
}

bool reads_full_rows(const policy::Part& part) {
  const policy::Params& params = part.params;
  return std::any_of(
             params.entries.begin(), params.entries.end(),
             [](const ParamValue& value) { return value.name == "feedback" && value.text == "raw"; }) ||
         std::any_of(params.parts.begin(), params.parts.end(),
                     [](const auto& wrapped) { return reads_full_rows(*wrapped.second); });
}

std::optional<Error> missing_queries(const trace::Sequence& sequence) {
  if (trace::first_row(sequence) <= sequence.first_measured()) return {};
  const std::string& where = sequence.source().name();
  if (sequence.first_query() > sequence.recorded_prompt_length())
    return Error(ErrorKind::input, "does not store the query of every generated token", where,
                 "Replay answers each of them: capture again with --queries all or --queries window:W.");
  return Error(ErrorKind::usage,
               "stores queries from position " + std::to_string(sequence.first_query()) + " on; cut " +
                   sequence.cut().text() + " needs those from " + std::to_string(sequence.first_measured()) +
                   " on",
               where,
               "Capture again with --queries all, or window:W with W reaching back that far" +
                   std::string(sequence.first_query() < sequence.length()
                                   ? "; or cut at " + std::to_string(sequence.first_query()) + "."
                                   : "."));
}

std::uint64_t prompt_seed(const trace::Sequence& sequence, std::uint64_t seed) {
  const std::vector<std::int32_t>& ids = sequence.source().header().token_id;
  std::uint64_t digest = key_of("prompt");
  for (std::uint64_t position = 0; position < sequence.prompt_length(); ++position)
    digest = combine({digest, static_cast<std::uint64_t>(ids[sequence.token(position)])});
  return combine({seed, digest});
}

policy::CacheUnit cache_unit(const trace::Model& model, std::uint32_t layer, std::uint32_t first_head,
                             std::uint32_t n_lanes, std::uint64_t seed, const policy::Tables* tables) {
  policy::CacheUnit unit;
  unit.layer = static_cast<int>(layer);
  unit.n_layers = static_cast<int>(model.n_layers);
  unit.first_kv_head = static_cast<int>(first_head);
  unit.n_lanes = static_cast<int>(n_lanes);
  unit.group = static_cast<int>(model.group());
  unit.head_dim = static_cast<int>(model.head_dim);
  unit.value_dim = static_cast<int>(model.v_head_dim);
  (model.chunked ? unit.chunk : unit.span) = static_cast<std::size_t>(std::max(model.layer_window[layer], 0));
  unit.seed = seed;
  unit.tables = tables;
  return unit;
}

EvictionGroup make_eviction_group(const trace::Sequence& sequence, const policy::Part& eviction,
                                  bool layer_unit, std::uint64_t seed) {
  EvictionGroup eviction_group;
  eviction_group.eviction = &eviction;
  eviction_group.needs = eviction.needs();
  eviction_group.layer_unit = layer_unit;
  check_contents(sequence, eviction_group.needs, eviction.spec->name);
  const trace::Model& model = sequence.model();
  if (!eviction.spec->is_oracle()) {
    const auto probe = eviction.make_eviction(
        cache_unit(model, 0, 0, eviction_group.layer_unit ? model.n_kv_heads : 1, seed));
    eviction_group.streams = probe->streams_prompt();
    if (!eviction_group.streams)
      eviction_group.requirement = row_requirement(sequence, *probe, eviction.spec->name);
  }
  if (eviction.spec->is_oracle()) {
    if (eviction_group.needs.queries) require_measured_queries(sequence, eviction.spec->name);
  } else if (eviction_group.needs.queries) {
    require_queries(sequence, sequence.prompt_length(), eviction.spec->name);
  } else if (eviction_group.streams && eviction_group.needs.decode_rows) {
    require_rows(sequence, sequence.prompt_length(), eviction.spec->name);
  }
  return eviction_group;
}

/// How decisions files number their cells.
std::string four_digits(const std::string& number) {
  return std::string(4 - std::min<std::size_t>(number.size(), 4), '0') + number;
}

/// Throws Error(usage) when a table of a policy is not there for this trace: the names of its file or dataset
/// hold "{trace}". What is read here is not read again.
void check_tables(const policy::Part& part, const policy::Tables& tables) {
  const auto given = [&](std::string_view name) -> std::string {
    for (const ParamValue& value : part.params.entries)
      if (value.name == name) return value.text;
    return {};
  };
  const std::string file = given("file"), cell = given("cell");
  const std::string dataset = cell.empty() ? given("dataset") : "cells/" + four_digits(cell) + "/last_step";
  if (!dataset.empty() && (file + dataset).find("{trace}") != std::string::npos)
    tables.row(file, dataset, 0, 0);
  for (const std::string& name : {file, given("queries")}) tables.require_file(name);
  if (part.needs().second_pass && !tables.has_second_pass())
    usage_error(
        "needs a second pass of the model over the prompt, and a trace has one", part.spec->name,
        "kvsim evaluate makes it. For a replay write it to a file: kvsim capture --second-pass FILE.");
  for (const auto& [name, wrapped] : part.params.parts) check_tables(*wrapped, tables);
}

Plan outline(const trace::Sequence& sequence, const Request& request) {
  if (request.cells.empty()) usage_error("no cell to evaluate");
  const trace::Model& model = sequence.model();
  if (const auto lacking = missing_queries(sequence)) throw Error(*lacking);

  Plan plan;
  plan.bounds = request.bounds && sequence.measured_length() > 0;
  plan.needs.queries = plan.bounds;
  std::map<std::pair<std::string, bool>, std::size_t> group_of_eviction;
  std::map<std::pair<std::string, bool>, std::size_t> group_of_part;
  for (const Cell& cell : request.cells) {
    const policy::Part& eviction = cell.composition.eviction;
    Plan::CellPlan& out = plan.cells.emplace_back();
    try {
      out.layer_budget = checked_budgets(sequence, cell);
      out.asked_tokens = mean_budget(model, out.layer_budget);
      out.budget_tokens = static_cast<std::size_t>(out.asked_tokens);
      check_allocation(sequence, cell.composition);
      const bool whole_layer = cell.composition.layer_unit();
      const auto known = group_of_eviction.find({eviction.text(), whole_layer});
      std::size_t eviction_group = plan.eviction_groups.size();
      if (known != group_of_eviction.end()) {
        eviction_group = known->second;
      } else {
        plan.eviction_groups.push_back(make_eviction_group(sequence, eviction, whole_layer, request.seed));
        group_of_eviction.emplace(std::pair{eviction.text(), whole_layer}, eviction_group);
        plan.layer_groups = plan.layer_groups || plan.eviction_groups.back().layer_unit;
        plan.needs = policy::merged(plan.needs, plan.eviction_groups.back().needs);
        if (eviction.spec->is_oracle()) plan.needs.queries = true;
      }
      check_scores(plan.eviction_groups[eviction_group], cell.composition);
      if (const std::string why = chunk_crossing(sequence, cell.composition, sequence.length()); !why.empty())
        usage_error(why, cell.composition.name);
      if (request.tables != nullptr) check_tables(eviction, *request.tables);
      const auto group_of = [&](const std::optional<policy::Part>& part, std::vector<PartGroup>& groups) {
        if (!part) return Plan::kNone;
        check_rows(cell.composition);
        if (request.tables != nullptr) check_tables(*part, *request.tables);
        const auto [number, first] = group_of_part.try_emplace({part->text(), whole_layer}, groups.size());
        if (first) {
          try {
            groups.push_back(make_part_group(sequence, *part, whole_layer ? model.n_kv_heads : 1,
                                             request.seed, request.tables));
          } catch (const Error&) {
            group_of_part.erase(number);
            throw;
          }
          plan.needs = policy::merged(plan.needs, groups.back().needs);
        }
        check_crossing(model, cell.composition, groups[number->second]);
        return number->second;
      };
      out.representation = group_of(cell.composition.representation, plan.representation_groups);
      out.selection = group_of(cell.composition.selection, plan.selection_groups);
      plan.eviction_groups[eviction_group].cells.push_back(plan.cells.size() - 1);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      out.skipped = error.what();
    }
  }
  // Output errors are also measured after the output projection, which takes all heads of a layer together.
  if (sequence.source().has_output_weights()) plan.layer_groups = plan.needs.output_weights = true;
  for (std::uint64_t position = 0; position < sequence.length(); ++position) {
    if (sequence.flags(position) & trace::kFlagEvidence)
      plan.evidence.push_back(static_cast<policy::Position>(position));
    if (position < sequence.prompt_length()) plan.segments.push_back(segment_of(sequence, position));
  }
  return plan;
}

void split_budgets(const trace::Sequence& sequence, const Request& request,
                   const AllocationPass& allocation_pass, Plan& plan, std::size_t length) {
  const trace::Model& model = sequence.model();
  for (EvictionGroup& eviction_group : plan.eviction_groups) {
    std::vector<std::size_t> left;
    for (const std::size_t cell : eviction_group.cells) {
      try {
        const policy::Composition& composition = request.cells[cell].composition;
        const std::vector<std::size_t>& asked = plan.cells[cell].layer_budget;
        const LaneShape shape = lane_shape(sequence, asked);
        std::vector<std::size_t>& budgets = plan.cells[cell].lane_budget;
        budgets = lane_budgets(
            composition, shape, asked.front(),
            {allocation_pass.profiles(composition.allocation), allocation_pass.scores(composition.eviction),
             allocation_pass.losses(composition.eviction), request.tables});
        bool moved = false;
        for (std::size_t lane = 0; lane < budgets.size(); ++lane)
          moved = moved || budgets[lane] != asked[lane / model.n_kv_heads];
        if (!composition.allocation.spec->even() && !moved &&
            !nothing_to_split(composition, shape, asked.front()))
          plan.cells[cell].idle = idle_allocation(composition);
        std::replace(budgets.begin(), budgets.end(), policy::kNeverEvict, length);
        for (std::size_t lane = 0; lane < budgets.size(); ++lane)
          budgets[lane] =
              most_held(model, static_cast<std::uint32_t>(lane / model.n_kv_heads), budgets[lane]);
        left.push_back(cell);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        plan.cells[cell].skipped = error.what();
      }
    }
    eviction_group.cells = std::move(left);
  }
  std::erase_if(plan.eviction_groups,
                [](const EvictionGroup& eviction_group) { return eviction_group.cells.empty(); });
}

std::size_t most_given(const Plan::CellPlan& cell, std::size_t prompt) {
  return std::max(prompt, *std::ranges::max_element(cell.layer_budget));
}

void run_once(const Request& request, std::size_t prompt, Plan& plan) {
  const auto same = [&](std::size_t a, std::size_t b) {
    // Whether a lane appends beside its budget depends on a budget larger than the prompt.
    const auto given = [&](std::size_t cell) { return most_given(plan.cells[cell], prompt); };
    return request.cells[a].composition.params == request.cells[b].composition.params &&
           plan.cells[a].lane_budget == plan.cells[b].lane_budget && given(a) == given(b);
  };
  for (EvictionGroup& eviction_group : plan.eviction_groups) {
    std::vector<std::size_t> run;
    for (const std::size_t cell : eviction_group.cells) {
      const auto first = std::ranges::find_if(run, [&](std::size_t other) { return same(cell, other); });
      if (first == run.end()) {
        run.push_back(cell);
      } else {
        plan.cells[cell].same_as = *first;
      }
    }
    eviction_group.cells = std::move(run);
  }
}

}  // namespace kvsim::sim
