#include "analysis/loop/evaluation.hpp"

#include <algorithm>

#include "analysis/loop/context_turns.hpp"
#include "analysis/results/utf8.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"
#include "sim/loop/loop_decisions.hpp"
#include "sim/replay/budget.hpp"
#include "sim/replay/table_files.hpp"
#include "traces/capture/prompt_run.hpp"
#include "traces/capture/token_header.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::analysis {

struct Evaluation::State {
  explicit State(const std::string& folder)
      : model_dir(folder),
        config(model::load_model_config(folder)),
        checkpoint(folder),
        weights(model::load_weights(checkpoint, config)),
        prompt{{}, model::load_tokenizer(folder), {}} {}

  const model::Tokenizer& tokenizer() const { return *prompt.tokenizer; }

  std::string model_dir;
  model::ModelConfig config;
  model::Checkpoint checkpoint;
  model::Weights weights;
  capture::Prompt prompt;  // its tokenizer serves all items
  std::uint64_t most_bytes = 0;
};

Evaluation::Evaluation(const std::string& model_dir) : state_(std::make_unique<State>(model_dir)) {}
Evaluation::~Evaluation() = default;

const std::vector<std::string>& Evaluation::notes() const {
  return state_->weights.notes;
}

std::vector<ColumnInfo> columns_of(const EvaluationOptions& options) {
  std::vector<ColumnInfo> columns = options.scope == AnswerScope::token   ? token_columns()
                                    : options.scope == AnswerScope::layer ? layer_columns()
                                                                          : answer_columns();
  if (options.losses) columns.insert(columns.end(), loss_columns().begin(), loss_columns().end());
  return columns;
}

std::uint64_t Evaluation::most_bytes() const {
  return state_->most_bytes;
}

std::vector<sim::LoopMode> parse_loop_modes(const std::string& mode, const std::string& where) {
  if (mode == "teacher") return {sim::LoopMode::teacher};
  if (mode == "greedy") return {sim::LoopMode::greedy};
  if (mode == "both") return {sim::LoopMode::teacher, sim::LoopMode::greedy};
  usage_error("unknown mode '" + mode + "'", where, suggestion(mode, {"teacher", "greedy", "both"}));
}

namespace {

using capture::WorkloadItem;

/// Tokens before the first that follows the context; all of them if no context is marked.
std::size_t context_tokens(const capture::Prompt& prompt) {
  std::size_t end = prompt.part_flags.size();
  while (end > 0 && (prompt.part_flags[end - 1] & trace::kFlagContext) == 0) --end;
  return end == 0 ? prompt.ids.size() : end;
}

void load_item(const WorkloadItem& item, capture::Prompt& prompt) {
  prompt.ids = prompt.tokenizer->encode(item.prompt);
  prompt.part_flags.clear();
  if (prompt.ids.empty()) input_error("the prompt has no tokens", item.id);
  if (!item.spans.empty()) prompt.part_flags = capture::part_flags(item, prompt.ids, *prompt.tokenizer);
  prompt.workload = item.kind;
  prompt.workload_item = item.id;
}

/// The most tokens that follow the first item's prompt, in any mode and protocol.
std::uint64_t most_new_tokens(const sim::LoopRequest& request) {
  std::uint64_t tokens = 0;
  for (const sim::LoopTurn& turn : request.turns)
    tokens += turn.question.size() + std::max<std::uint64_t>(request.max_new_tokens, turn.answer.size());
  return tokens;
}

bool projects_outputs(const sim::Cell& cell) {
  return cell.composition.eviction.needs().output_weights ||
         cell.composition.allocation.needs().output_weights;
}

void check_losses(const EvaluationOptions& options) {
  if (!options.losses) return;
  if (options.scope != AnswerScope::answer)
    usage_error("stand beside answers", "--losses", "Leave --per out.");
  if (options.protocol != sim::TurnProtocol::requests || options.prefill_tokens > 0 ||
      options.positions != sim::LoopPositions::text)
    usage_error(
        "are those of a replay, which knows separate requests, a dense prefill and positions of the text",
        "--losses", "Leave --turns, --prefill and --positions out.");
}

/// A schedule was made for the tokens of another run, which greedy mode does not follow.
void check_schedules(const EvaluationOptions& options) {
  if (std::find(options.modes.begin(), options.modes.end(), sim::LoopMode::greedy) == options.modes.end())
    return;
  for (const sim::Cell& cell : options.cells)
    if (cell.composition.eviction.spec->name == "external_schedule")
      usage_error("external_schedule follows what was decided for recorded tokens; greedy mode feeds others",
                  "--mode", "Say --mode teacher.");
}

}  // namespace

std::vector<std::vector<Value>> Evaluation::answer(std::span<const WorkloadItem> items,
                                                   const EvaluationOptions& options, Progress& progress) {
  check_schedules(options);
  check_losses(options);
  State& s = *state_;
  capture::Prompt& prompt = s.prompt;
  const WorkloadItem& first = items.front();
  load_item(first, prompt);

  sim::LoopRequest request;
  request.cells = options.cells;
  request.modes = options.modes;
  request.protocol = options.protocol;
  request.positions = options.positions;
  request.prefill_tokens = options.prefill_tokens;
  request.profile_dense = options.profile_dense;
  request.force_answer = options.force_answer;
  request.max_new_tokens = options.max_new_tokens;
  request.turns = options.protocol == sim::TurnProtocol::requests
                      ? separate_turns(items, prompt.ids, context_tokens(prompt), s.tokenizer())
                      : following_turns(items, prompt.ids, s.tokenizer());
  const bool asked_after_context = std::all_of(options.cuts.begin(), options.cuts.end(), [](const auto& cut) {
    return cut.at == trace::Cut::At::question;
  });
  if (items.size() > 1 && options.protocol == sim::TurnProtocol::requests &&
      (request.turns.empty() || !asked_after_context)) {
    // The prompt that is cut holds the question, or is not the same text: one run each.
    std::vector<std::vector<Value>> rows;
    for (const WorkloadItem& item : items)
      for (std::vector<Value>& row : answer({&item, 1}, options, progress)) rows.push_back(std::move(row));
    return rows;
  }
  request.eos = s.config.eos;
  request.elem = capture::parse_cache_elem(options.elem, s.weights.elem, Elem::f32);
  request.seed = options.seed;
  request.threads = options.threads;
  request.decisions = static_cast<bool>(options.decisions);
  request.token_flags = [&](std::int32_t id) { return capture::token_flag(id, s.tokenizer(), s.config); };
  const std::uint64_t new_tokens = most_new_tokens(request);
  const std::uint64_t positions = prompt.ids.size() + new_tokens;
  try {
    capture::check_context(prompt.ids.size(), new_tokens, s.config.max_positions);
  } catch (const Error& error) {
    usage_error(error.what(), first.id);
  }
  model::check_rope_regime(s.config.rope, prompt.ids.size(), positions);

  const trace::MemoryTrace trace = capture::run_prompt(
      prompt, s.config, s.weights,
      {.model_dir = s.model_dir,
       .elem = request.elem,
       .positions = positions,
       .prefill_chunk = options.prefill_chunk,
       .threads = options.threads,
       .output_weights = std::any_of(options.cells.begin(), options.cells.end(), projects_outputs)},
      progress);
  /// The full cache's run on the tokens of the answer, or on those it generates itself.
  const auto recorded_run = [&](const WorkloadItem& item, const std::vector<std::int32_t>& generated,
                                const std::vector<std::int32_t>& given) {
    load_item(item, prompt);
    std::vector<std::int32_t> fed = options.force_answer && !given.empty() ? given : generated;
    if (!fed.empty()) fed.pop_back();  // nothing is read after the last token
    trace::MemoryTrace run = capture::run_prompt(
        prompt, s.config, s.weights,
        {.model_dir = s.model_dir,
         .elem = request.elem,
         .positions = positions,
         .prefill_chunk = options.prefill_chunk,
         .threads = options.threads,
         .output_weights = std::any_of(options.cells.begin(), options.cells.end(), projects_outputs),
         .answer = std::move(fed)},
        progress);
    load_item(first, prompt);
    return run;
  };
  std::vector<std::vector<std::vector<Value>>> rows(items.size());  // by item
  for (const trace::Cut& cut : options.cuts) {
    std::optional<trace::Sequence> sequence;
    try {
      sequence.emplace(trace, 0, cut);
    } catch (const Error& error) {
      throw Error(error.kind(), error.what(), first.id, "");
    }
    const std::uint64_t bytes = sim::estimate_loop_bytes(*sequence, s.config, request);
    s.most_bytes = std::max(s.most_bytes, bytes);
    if (options.memory_limit > 0 && bytes > options.memory_limit)
      usage_error(
          "needs about " + bytes_text(bytes) + " of memory, the limit is " + bytes_text(options.memory_limit),
          first.id, "Ask for fewer policies, budgets or tokens at once.");
    const sim::TableFiles tables(*sequence);
    request.tables = &tables;
    std::vector<sim::LoopOutcome> outcomes =
        sim::closed_loop(*sequence, prompt.ids, s.config, s.weights, request, progress);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const WorkloadItem& item = items[i];
      const AnswerItem described{
          .item = item.id,
          .workload = item.kind,
          .model = trace.header().model.name,
          .turn = item.turn,
          .answers = item.answers,
          .text =
              [&](const std::vector<std::int32_t>& ids) { return well_formed(s.tokenizer().decode(ids)); },
          .right =
              [&](const std::string& text) { return workload::is_right(text, item.expect, item.answers); },
          .lanes = std::uint64_t{s.config.n_layers} * s.config.n_kv_heads,
          .token_bytes = sim::token_bytes(*sequence)};
      const auto made = options.scope == AnswerScope::token   ? token_rows
                        : options.scope == AnswerScope::layer ? layer_rows
                                                              : answer_rows;
      std::vector<std::vector<Value>> of_item = made(described, request, outcomes[i]);
      if (options.losses) {
        const trace::MemoryTrace run =
            recorded_run(item, outcomes[i].references.front().tokens, request.turns[i].answer);
        const trace::Sequence whole(run, 0, cut);
        sim::Request replay;
        replay.cells = options.cells;
        replay.seed = options.seed;
        replay.threads = options.threads;
        replay.tables = &tables;
        const std::vector<std::vector<Value>> losses = replayed_losses(whole, replay);
        for (std::size_t row = 0; row < of_item.size(); ++row) {
          const std::vector<Value>& of_cell = losses[row / request.modes.size()];
          of_item[row].insert(of_item[row].end(), of_cell.begin(), of_cell.end());
        }
      }
      for (std::vector<Value>& row : of_item) rows[i].push_back(std::move(row));
      if (options.decisions) options.decisions(sim::decisions_of(*sequence, request, std::move(outcomes[i])));
    }
  }
  std::vector<std::vector<Value>> all;
  for (std::vector<std::vector<Value>>& of_item : rows)
    for (std::vector<Value>& row : of_item) all.push_back(std::move(row));
  return all;
}

}  // namespace kvsim::analysis
