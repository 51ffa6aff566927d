#include "sim/loop/closed_loop.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/loop/loop_run.hpp"
#include "sim/replay/allocation_pass.hpp"

namespace kvsim::sim {
namespace {

/// Most tokens that any stream is fed after the cut.
std::size_t most_fed(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
                     const LoopRequest& request) {
  std::size_t most = 0;
  for (const LoopMode mode : request.modes)
    for (const Script& script : scripts_of(request, mode, fed_at_first(sequence, tokens)))
      most = std::max(most, most_tokens(request, mode, script) + request.drafted_beyond());
  return most;
}

}  // namespace

std::span<const std::int32_t> fed_at_first(const trace::Sequence& sequence,
                                           std::span<const std::int32_t> tokens) {
  return tokens.subspan(static_cast<std::size_t>(sequence.first_measured()));
}

LoopRun::LoopRun(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
                 const model::ModelConfig& config, const model::Weights& weights, const LoopRequest& asked,
                 Progress& progress, LoopRun* verifier)
    : verifier_(verifier == nullptr ? this : verifier),
      sequence_(sequence),
      tokens_(tokens),
      config_(config),
      asked_(asked),
      progress_(progress),
      workers_(asked.threads),
      loop_plan_(plan_loop(sequence, asked)),
      prompt_(sequence.prompt_length()),
      first_fed_(sequence.first_measured()),
      length_(first_fed_ + most_fed(sequence, tokens, asked)),
      batch_(config, weights, asked.elem, length_, workers_),
      outcomes_(asked.turns.size()) {
  if (asked.positions == LoopPositions::text) return;
  if (config.learned_positions > 0)
    usage_error("a model that learned its positions has no keys that could be turned to others",
                "--positions", "Say text.");
  for (std::uint32_t layer = 0; layer < config.n_layers; ++layer) {
    // Layers that rotate alike share a table.
    const std::size_t number = sequence.model().rotation_of(layer);
    rotations_.resize(std::max(rotations_.size(), number + 1));
    if (!rotations_[number]) rotations_[number].emplace(sequence.model().rotary(layer), length_);
  }
}

void LoopRun::plan_cells() {
  choose_cells();
  plan_ = outline(sequence_, request_);
  AllocationPass allocation_pass(sequence_, request_, plan_);
  progress_.total.store(allocation_pass.work() + prompt_work() + own_prompt_work() + answer_work(),
                        std::memory_order_relaxed);
  allocation_pass.run(workers_, progress_);
  split_budgets(sequence_, request_, allocation_pass, plan_, length_);
  run_once(request_, prompt_, plan_);
}

std::vector<LoopOutcome> LoopRun::run() {
  if (helper_ != nullptr) {
    helper_->plan_cells();
    if (const std::string& why = helper_->plan_.cells.front().skipped; !why.empty())
      usage_error(why, "the draft's cache");
  }
  plan_cells();
  make_streams();
  if (drafts_apart()) verifier_->read_prompt();
  begin_caches();
  if (helper_ != nullptr) {
    helper_->begin_caches();
    helper_->end_prompt();
  }
  if (std::any_of(streams_.begin(), streams_.end(), processes_prompt)) process_prompts();
  end_prompt();
  if (drafts()) {
    for (bool going = !drafts_.empty() && verify(); going; going = verify()) draft();
    return outcomes();
  }
  if (!asks_again()) note_stored();
  for (std::size_t position = first_fed_; step(position); ++position) progress_.advance(step_work());
  keep_references();
  return outcomes();
}

void LoopRun::keep_references() {
  if (kept_references() == nullptr) return;
  kept_references()->clear();
  for (Stream& stream : streams_)
    if (stream.is_reference)
      kept_references()->push_back({stream.text, stream.turns, std::move(stream.predicted)});
}

std::uint64_t LoopRun::prompt_work() const {
  std::size_t rows = 0;
  for (const EvictionGroup& group : plan_.eviction_groups) rows = std::max(rows, group.requirement.rows);
  return step_work() * (prompt_ - first_prompt_row(sequence_, rows));
}

std::uint64_t LoopRun::own_prompt_work() const {
  return std::any_of(loop_plan_.cells.begin(), loop_plan_.cells.end(),
                     [](const auto& cell) { return cell.prefill != Prefill::dense; })
             ? prompt_ * step_work()
             : 0;
}

const char* loop_mode_name(LoopMode mode) {
  constexpr const char* kNames[] = {"teacher", "greedy", "draft"};
  return kNames[static_cast<std::size_t>(mode)];
}

const char* turn_protocol_name(TurnProtocol protocol) {
  constexpr const char* kNames[] = {"requests", "golden", "own"};
  return kNames[static_cast<std::size_t>(protocol)];
}

const char* prefill_name(Prefill prefill) {
  constexpr const char* kNames[] = {"dense", "stream", "chunked"};
  return kNames[static_cast<std::size_t>(prefill)];
}

const char* loop_positions_name(LoopPositions positions) {
  constexpr const char* kNames[] = {"text", "cache-step", "cache-once"};
  return kNames[static_cast<std::size_t>(positions)];
}

std::vector<LoopOutcome> closed_loop(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
                                     const model::ModelConfig& config, const model::Weights& weights,
                                     const LoopRequest& request, Progress& progress) {
  if (request.modes.empty()) bug("a closed loop without a mode");
  if (request.modes.size() > 1 && std::ranges::count(request.modes, LoopMode::draft) > 0)
    bug("a closed loop that drafts has no other mode");
  if (tokens.size() != sequence.length() || sequence.recorded_prompt_length() != sequence.length())
    bug("the closed loop takes a prompt that nothing follows");
  for (std::size_t turn = 0; turn < request.turns.size(); ++turn)
    for (const LoopMode mode : request.modes)
      if (most_answer_tokens(request, mode, turn) == 0)
        usage_error("must be at least 1", "--max-new-tokens", "An answer has at least one token.");
  if (request.drafter && request.helper) bug("a closed loop with two models that draft");
  if (!request.drafter && !request.helper)
    return LoopRun(sequence, tokens, config, weights, request, progress).run();
  const DraftModel& other = request.drafter ? *request.drafter : *request.helper;
  if (!std::ranges::equal(fed_at_first(sequence, tokens), fed_at_first(*other.sequence, other.tokens)))
    usage_error("what is fed after the cut is not what the draft's prompt ends with", "--cut", "Say prompt.");
  const auto run_of_other = [&](const LoopRequest& asked, LoopRun& full) {
    return LoopRun(*other.sequence, other.tokens, *other.config, *other.weights, asked, progress, &full);
  };
  LoopRequest rest = request;  // of the model that does not have the request's cells
  rest.cells.clear();
  if (request.drafter) {
    LoopRun full(sequence, tokens, config, weights, rest, progress);
    return run_of_other(request, full).run();
  }
  rest.cells.push_back(*request.helper_cell);
  LoopRun full(sequence, tokens, config, weights, request, progress);
  LoopRun helper = run_of_other(rest, full);
  full.help_with(helper);
  return full.run();
}

std::uint64_t estimate_loop_bytes(const trace::Sequence& sequence, const model::ModelConfig& config,
                                  const LoopRequest& request) {
  const std::vector<std::int32_t> tokens(sequence.length());
  const LoopPlan plan = plan_loop(sequence, request);
  std::uint64_t dense = 0, stream = 0, chunked = 0;
  for (const auto& cell : plan.cells) {
    if (!cell.refused.empty()) continue;
    (cell.prefill == Prefill::dense ? dense : cell.prefill == Prefill::stream ? stream : chunked) += 1;
  }
  const std::uint64_t fed = most_fed(sequence, tokens, request), prompt = sequence.prompt_length();
  std::uint64_t scripts = 0;
  for (const LoopMode mode : request.modes)
    scripts += scripts_of(request, mode, fed_at_first(sequence, tokens)).size();
  const std::uint64_t token = 2ULL * config.n_layers * config.n_kv_heads * config.head_dim;
  const std::uint64_t queries = std::uint64_t{config.n_layers} * config.n_heads * config.head_dim;
  const std::uint64_t own = stream + chunked;
  std::uint64_t stored = 0;  // cells whose representation keeps numbers of its own
  bool pairs = false;        // some store layers together, so that each layer reads another's prompt, too
  for (std::size_t cell = 0; cell < request.cells.size(); ++cell) {
    const std::optional<policy::Part>& representation = request.cells[cell].composition.representation;
    if (!plan.cells[cell].refused.empty() || !representation) continue;
    ++stored;
    pairs = pairs || stores_pairs(sequence.model(), *representation, 1);
  }
  const bool drafts = request.drafts();
  // Each cell that drafts has a full cache of its own, whose queries are kept, and logits of every draft.
  const std::uint64_t streams = drafts ? 2 * dense : (dense > 0 ? dense + 1 : 0) + (own > 0 ? own + 1 : 0);
  const std::uint64_t logits = config.vocab_size * (drafts ? 3 * (request.gamma + 1) : 1);
  // Streams that process the prompt themselves keep all of its keys and values; where it comes in chunks also
  // its queries, and what the policies rank.
  return (scripts * (streams * (fed * (token + (drafts ? queries : 0)) + logits + 8ULL * config.hidden_size) +
                     stored * (prompt + fed) * token + (own > 0 ? own + 1 : 0) * prompt * token +
                     chunked * prompt * (queries + token)) +
          (pairs ? 3 : 1) * sequence.length() * token) *
         sizeof(float);
}

}  // namespace kvsim::sim
