#include "analysis/loop/evaluation.hpp"

#include <algorithm>

#include "analysis/results/utf8.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/error.hpp"
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
};

Evaluation::Evaluation(const std::string& model_dir) : state_(std::make_unique<State>(model_dir)) {}
Evaluation::~Evaluation() = default;

const std::vector<std::string>& Evaluation::notes() const {
  return state_->weights.notes;
}

namespace {

/// The tokens that the answer adds to the prompt. Throws Error(input) when it changes the prompt's own.
std::vector<std::int32_t> answer_tokens(const model::Tokenizer& tokenizer, const capture::WorkloadItem& item,
                                        const std::vector<std::int32_t>& prompt) {
  const std::vector<std::int32_t> all = tokenizer.encode(item.prompt + item.answers.front());
  if (all.size() <= prompt.size() || !std::equal(prompt.begin(), prompt.end(), all.begin()))
    input_error("the answer '" + item.answers.front() + "' does not follow the prompt as tokens of its own",
                item.id, "Begin the answer with a space.");
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end()};
}

}  // namespace

std::vector<std::vector<Value>> Evaluation::answer(const capture::WorkloadItem& item,
                                                   const EvaluationOptions& options, Progress& progress) {
  State& s = *state_;
  capture::Prompt& prompt = s.prompt;
  prompt.ids = s.tokenizer().encode(item.prompt);
  prompt.part_flags.clear();
  if (prompt.ids.empty()) input_error("the prompt has no tokens", item.id);
  if (!item.spans.empty()) prompt.part_flags = capture::part_flags(item, prompt.ids, s.tokenizer());
  prompt.workload = item.kind;
  prompt.workload_item = item.id;

  sim::LoopRequest request;
  request.cells = options.cells;
  request.modes = options.modes;
  request.max_new_tokens = options.max_new_tokens;
  if (options.force_answer && !item.answers.empty())
    request.turns.front().answer = answer_tokens(s.tokenizer(), item, prompt.ids);
  request.eos = s.config.eos;
  request.elem = capture::parse_cache_elem(options.elem, s.weights.elem, Elem::f32);
  request.seed = options.seed;
  request.threads = options.threads;
  request.decisions = static_cast<bool>(options.decisions);
  request.token_flags = [&](std::int32_t id) { return capture::token_flag(id, s.tokenizer(), s.config); };
  const std::uint64_t new_tokens = std::max<std::uint64_t>(options.max_new_tokens, request.turns.front().answer.size());
  const std::uint64_t positions = prompt.ids.size() + new_tokens;
  try {
    capture::check_context(prompt.ids.size(), new_tokens, s.config.max_positions);
  } catch (const Error& error) {
    usage_error(error.what(), item.id);
  }
  model::check_rope_regime(s.config.rope, prompt.ids.size(), positions);

  const bool output_weights =
      std::any_of(options.cells.begin(), options.cells.end(), [](const sim::Cell& cell) {
        return cell.composition.eviction.needs().output_weights ||
               cell.composition.allocation.needs().output_weights;
      });
  const trace::MemoryTrace trace = capture::run_prompt(prompt, s.config, s.weights,
                                                       {.model_dir = s.model_dir,
                                                        .elem = request.elem,
                                                        .positions = positions,
                                                        .prefill_chunk = options.prefill_chunk,
                                                        .threads = options.threads,
                                                        .output_weights = output_weights},
                                                       progress);
  AnswerItem described{
      .item = item.id,
      .workload = item.kind,
      .model = trace.header().model.name,
      .answers = item.answers,
      .text = [&](const std::vector<std::int32_t>& ids) { return well_formed(s.tokenizer().decode(ids)); },
      .right = [&](const std::string& text) { return workload::is_right(text, item.expect, item.answers); },
      .lanes = std::uint64_t{s.config.n_layers} * s.config.n_kv_heads};
  std::vector<std::vector<Value>> rows;
  for (const trace::Cut& cut : options.cuts) {
    std::optional<trace::Sequence> sequence;
    try {
      sequence.emplace(trace, 0, cut);
    } catch (const Error& error) {
      throw Error(error.kind(), error.what(), item.id, "");
    }
    const std::uint64_t bytes = sim::estimate_loop_bytes(*sequence, s.config, request);
    if (options.memory_limit > 0 && bytes > options.memory_limit)
      usage_error(
          "needs about " + bytes_text(bytes) + " of memory, the limit is " + bytes_text(options.memory_limit),
          item.id, "Ask for fewer policies, budgets or tokens at once.");
    described.token_bytes = sim::token_bytes(*sequence);
    const sim::TableFiles tables(*sequence);
    request.tables = &tables;
    sim::LoopOutcome outcome =
        sim::closed_loop(*sequence, prompt.ids, s.config, s.weights, request, progress).front();
    const auto made = options.per_token ? token_rows : answer_rows;
    for (std::vector<Value>& row : made(described, request, outcome)) rows.push_back(std::move(row));
    if (options.decisions) options.decisions(sim::decisions_of(*sequence, request, std::move(outcome)));
  }
  return rows;
}

}  // namespace kvsim::analysis
