#include "sim/loop/loop_plan.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/loop/chunked_prompt.hpp"
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

}  // namespace kvsim::sim
