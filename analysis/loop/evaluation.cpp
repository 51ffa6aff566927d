#include "analysis/loop/evaluation.hpp"

#include <algorithm>
#include <optional>

#include "analysis/loop/context_turns.hpp"
#include "analysis/loop/part_rows.hpp"
#include "analysis/loop/piece_origins.hpp"
#include "analysis/results/json_string.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/suggest.hpp"
#include "sim/loop/chunk_context.hpp"
#include "sim/loop/loop_decisions.hpp"
#include "sim/replay/budget.hpp"
#include "sim/replay/table_files.hpp"
#include "traces/capture/prompt_run.hpp"
#include "traces/capture/second_pass.hpp"
#include "traces/capture/token_header.hpp"
#include "traces/format/source.hpp"
#include "traces/model/provenance.hpp"

namespace kvsim::analysis {

struct Evaluation::Loaded {
  explicit Loaded(const std::string& folder)
      : model_dir(folder),
        config(model::load_model_config(folder)),
        checkpoint(folder),
        weights(model::load_weights(checkpoint, config)),
        prompt{{}, model::load_tokenizer(folder), {}} {}

  std::string model_dir;
  model::ModelConfig config;
  model::Checkpoint checkpoint;
  model::Weights weights;
  mutable capture::Prompt prompt;  // of the latest item; its tokenizer serves all
  mutable DocumentRuns documents;
};

Evaluation::Evaluation(const std::string& model_dir) : loaded_(std::make_unique<const Loaded>(model_dir)) {}
Evaluation::~Evaluation() = default;

void Evaluation::draft_with(const std::string& model_dir) {
  drafter_ = std::make_unique<const Loaded>(model_dir);
  const model::Tokenizer &mine = tokenizer(), &its = *drafter_->prompt.tokenizer;
  const std::uint32_t ids = std::max(loaded_->config.vocab_size, drafter_->config.vocab_size);
  for (std::int32_t id = 0; static_cast<std::uint32_t>(id) < ids; ++id)
    if (mine.bytes(id) != its.bytes(id))
      input_error("its token " + std::to_string(id) + " is " + in_quotes(well_formed(its.bytes(id))) +
                      ", that of " + loaded_->model_dir + " " + in_quotes(well_formed(mine.bytes(id))),
                  model_dir,
                  "What drafts and what verifies have the same vocabulary, as models of one family have.");
}

std::vector<std::string> Evaluation::notes() const {
  std::vector<std::string> notes = loaded_->weights.notes;
  if (drafter_) notes.insert(notes.end(), drafter_->weights.notes.begin(), drafter_->weights.notes.end());
  return notes;
}

const model::Tokenizer& Evaluation::tokenizer() const {
  return *loaded_->prompt.tokenizer;
}

std::vector<capture::WorkloadItem> Evaluation::recorded(const trace::Sequence& sequence,
                                                        const std::string& name) const {
  return recorded_items(sequence, name, *loaded_->prompt.tokenizer, loaded_->config.vocab_size);
}

RowMaker row_maker(AnswerScope scope) {
  constexpr RowMaker kMakers[] = {answer_rows, token_rows, layer_rows,
                                  nullptr,     draft_rows, drafted_token_rows};
  return kMakers[static_cast<std::size_t>(scope)];
}

std::function<bool(const std::string&)> right_answer(const capture::WorkloadItem& item) {
  if (item.expect == workload::Expect::nothing) return {};
  return [&item](const std::string& text) { return workload::is_right(text, item.expect, item.answers); };
}

namespace {

/// Tokens of the shortest text that is right, and of the longest that is expected.
struct AnswerLength {
  std::uint64_t least = 0, most = 0;
};

AnswerLength answer_length(const capture::WorkloadItem& item, const model::Tokenizer& tokenizer) {
  if (!item.answer_ids.empty()) return {item.answer_ids.size(), item.answer_ids.size()};
  AnswerLength out;
  const bool all = item.expect == workload::Expect::all || item.expect == workload::Expect::holds_all;
  for (std::size_t i = 0; i < item.answers.size(); ++i) {
    const std::uint64_t tokens = tokenizer.encode(item.answers[i], false).size();
    out.least = all ? out.least + tokens : i == 0 ? tokens : std::min(out.least, tokens);
    out.most = all ? out.most + tokens : std::max(out.most, tokens);
  }
  return out;
}

}  // namespace

std::uint64_t tokens_to_generate(std::span<const capture::WorkloadItem> items,
                                 const model::Tokenizer& tokenizer) {
  constexpr std::uint64_t kAtLeast = 8, kSentence = 32;
  std::uint64_t most = kAtLeast;
  for (const capture::WorkloadItem& item : items) {
    const bool within =
        item.expect == workload::Expect::holds_any || item.expect == workload::Expect::holds_all;
    most = std::max(most, answer_length(item, tokenizer).most + (within ? kSentence : 0));
  }
  return most;
}

std::string cut_short_note(std::span<const capture::WorkloadItem> items, const model::Tokenizer& tokenizer,
                           std::uint64_t tokens) {
  std::uint64_t short_of = 0, most = 0;
  for (const capture::WorkloadItem& item : items) {
    if (item.expect == workload::Expect::nothing) continue;
    const std::uint64_t least = answer_length(item, tokenizer).least;
    if (least > tokens) ++short_of;
    most = std::max(most, least);
  }
  if (short_of == 0) return {};
  return "--max-new-tokens " + std::to_string(tokens) + " is too short for the expected answers of " +
         std::to_string(short_of) + " of " + std::to_string(items.size()) +
         (items.size() == 1 ? " prompt" : " prompts") +
         ", which no cache can answer right; the longest takes " + std::to_string(most) + " tokens";
}

std::vector<ColumnInfo> columns_of(const EvaluationOptions& options) {
  constexpr const std::vector<ColumnInfo>& (*kColumns[])() = {
      answer_columns, token_columns, layer_columns, seam_columns, draft_columns, drafted_token_columns};
  std::vector<ColumnInfo> columns = kColumns[static_cast<std::size_t>(options.scope)]();
  if (!options.assemblies.empty() && options.scope == AnswerScope::answer)
    columns.insert(columns.end(), assembly_columns().begin(), assembly_columns().end());
  if (options.losses) columns.insert(columns.end(), loss_columns().begin(), loss_columns().end());
  return columns;
}

std::vector<sim::LoopMode> parse_loop_modes(const std::string& mode, const std::string& where) {
  if (mode == "teacher") return {sim::LoopMode::teacher};
  if (mode == "greedy") return {sim::LoopMode::greedy};
  if (mode == "both") return {sim::LoopMode::teacher, sim::LoopMode::greedy};
  usage_error("unknown mode '" + mode + "'", where, suggestion(mode, {"teacher", "greedy", "both"}));
}

namespace {

/// Runs of documents are kept for the next prompts, of as many tokens as this many prompts have.
constexpr std::uint64_t kKeptPrompts = 3;

using capture::WorkloadItem;
using Loaded = Evaluation::Loaded;

/// Tokens before the first that follows the context; all of them if no context is marked.
std::size_t context_tokens(const capture::Prompt& prompt) {
  std::size_t end = prompt.part_flags.size();
  while (end > 0 && (prompt.part_flags[end - 1] & trace::kFlagContext) == 0) --end;
  return end == 0 ? prompt.ids.size() : end;
}

void load_item(const WorkloadItem& item, capture::Prompt& prompt) {
  prompt.ids = capture::prompt_ids(item, *prompt.tokenizer);
  if (prompt.ids.empty()) input_error("the prompt has no tokens", item.id);
  prompt.part_flags = capture::prompt_flags(item, prompt.ids, *prompt.tokenizer);
}

/// The most tokens that follow the first item's prompt, of which `context` come before its question. Requests
/// are each asked after the context, so that none is longer in company than alone.
std::uint64_t most_new_tokens(const sim::LoopRequest& request, std::uint64_t prompt, std::uint64_t context) {
  std::uint64_t before = prompt, most = prompt;
  for (std::size_t i = 0; i < request.turns.size(); ++i) {
    const sim::LoopTurn& turn = request.turns[i];
    if (i > 0 && request.protocol == sim::TurnProtocol::requests) before = context;
    before += turn.question.size() + std::max<std::uint64_t>(request.max_new_tokens, turn.answer.size());
    most = std::max(most, before);
  }
  // The last drafts may reach beyond an answer.
  return most - prompt + request.drafted_beyond();
}

bool projects_outputs(const sim::Cell& cell) {
  return cell.composition.eviction.needs().output_weights ||
         cell.composition.allocation.needs().output_weights;
}

bool needs_surprises(const sim::Cell& cell) {
  return cell.composition.needs().surprises;
}
bool needs_second_pass(const sim::Cell& cell) {
  return cell.composition.needs().second_pass;
}
bool needs_repeated_queries(const sim::Cell& cell) {
  return cell.composition.needs().repeated_queries;
}

void check_losses(const EvaluationOptions& options) {
  if (!options.losses) return;
  if (options.scope != AnswerScope::answer)
    usage_error("stand beside answers", "--losses", "Leave --per out.");
  if (options.protocol != sim::TurnProtocol::requests || options.prefill_tokens > 0 ||
      !options.assemblies.empty() || options.positions != sim::LoopPositions::text)
    usage_error(
        "are those of a replay, which knows separate requests, a dense prefill and positions of the text",
        "--losses", "Leave --turns, --prefill and --positions out.");
}

/// A schedule was made for the tokens of another run, which greedy mode does not follow.
void check_schedules(const EvaluationOptions& options) {
  if (std::ranges::find(options.modes, sim::LoopMode::greedy) == options.modes.end()) return;
  for (const sim::Cell& cell : options.cells)
    if (cell.composition.eviction.spec->name == "external_schedule")
      usage_error("external_schedule follows what was decided for recorded tokens; greedy mode feeds others",
                  "--mode", "Say --mode teacher.");
}

/// The questions about one context, in one run.
class ContextRun {
 public:
  /// `drafter`: another checkpoint, whose caches the cells are; null: they are the model's.
  ContextRun(const Loaded& model, const Loaded* drafter, std::span<const WorkloadItem> items,
             const EvaluationOptions& options)
      : model_(model), drafter_(drafter), items_(items), options_(options) {
    const capture::Prompt& prompt = load(items.front());
    request_.cells = options.cells;
    request_.modes = options.modes;
    request_.protocol = options.protocol;
    request_.positions = options.positions;
    request_.prefill_tokens = options.prefill_tokens;
    request_.profile_dense = options.profile_dense;
    request_.force_answer = options.force_answer;
    request_.max_new_tokens = options.max_new_tokens;
    request_.gamma = options.gamma;
    request_.temperature = options.temperature;
    request_.helper_cell = options.helper_cell;
    request_.lead = options.lead;
    request_.turns = options.protocol == sim::TurnProtocol::requests
                         ? separate_turns(items, prompt.ids, context_tokens(prompt), *prompt.tokenizer)
                         : following_turns(items, prompt.ids, *prompt.tokenizer);
    request_.eos = model.config.eos;
    request_.elem = capture::parse_cache_elem(options.elem, model.weights.elem, Elem::f32);
    request_.seed = options.seed;
    request_.threads = options.threads;
    request_.decisions = static_cast<bool>(options.decisions);
    request_.token_flags = [this](std::int32_t id) {
      return capture::token_flag(id, *model_.prompt.tokenizer, model_.config);
    };
    check_context();
  }

  /// Whether the items need runs of their own: the prompt that is cut holds the question, or they do not
  /// begin with the same tokens.
  bool apart() const {
    const auto after_context = [](const trace::Cut& cut) { return cut.at == trace::Cut::At::question; };
    return items_.size() > 1 && options_.protocol == sim::TurnProtocol::requests &&
           (request_.turns.empty() || !std::ranges::all_of(options_.cuts, after_context));
  }

  /// Bytes that the run holds at once, the prompt's trace included.
  std::uint64_t bytes() const {
    // Where a prompt is put together: its own run, documents as they are kept and as they are placed, and
    // what comes of them.
    const std::uint64_t runs = options_.assemblies.empty() ? 1 : 3 + kKeptPrompts;
    return runs * prompt_bytes(model_) + loop_bytes(model_) +
           (drafter_ == nullptr ? 0 : prompt_bytes(*drafter_) + loop_bytes(*drafter_));
  }

  /// The first item's, at the first cut.
  std::vector<std::vector<Value>> losses(Progress& progress) {
    const sim::LoopTurn& turn = request_.turns.front();
    if (turn.answer.empty())
      usage_error("has no expected answer, on which losses are measured", items_.front().id);
    const trace::MemoryTrace prompt = run(items_.front(), {}, nullptr, progress);
    sim::TableFiles tables(sequence_at(prompt, options_.cuts.front()), items_.front().id);
    add_second_pass(sequence_at(prompt, options_.cuts.front()), tables, progress);
    request_.tables = &tables;
    return losses_of(0, &prompt, options_.cuts.front(), turn.answer, progress);
  }

  /// What `ask` makes of the first item's prompt at the first cut, of which nothing is computed.
  template <class Ask>
  auto of_prompt(const Ask& ask) const {
    trace::Header header = prompt_header(model_);
    header.elem = request_.elem;
    const trace::HeaderSource source(std::move(header));
    return ask(sequence_at(source, options_.cuts.front()));
  }

  std::vector<std::vector<Value>> rows(Progress& progress) {
    const trace::MemoryTrace trace = run(items_.front(), {}, nullptr, progress);
    if (drafter_ != nullptr) {
      const capture::Prompt& prompt = load(items_.front());
      if (options_.draft_documents > 0) drop_documents(model_.prompt);
      draft_ids_ = prompt.ids;
      draft_prompt_.emplace(
          capture::run_prompt(prompt, drafter_->config, drafter_->weights, options_of(*drafter_), progress));
    }
    std::vector<std::vector<std::vector<Value>>> by_item(items_.size());
    if (options_.assemblies.empty())
      for (const trace::Cut& cut : options_.cuts) add_rows(cut, trace, trace, by_item, progress);
    else
      add_assembled_rows(trace, by_item, progress);
    std::vector<std::vector<Value>> all;
    for (std::vector<std::vector<Value>>& of_item : by_item)
      std::move(of_item.begin(), of_item.end(), std::back_inserter(all));
    return all;
  }

 private:
  /// Whether the cells are the other model's.
  bool drafts_apart() const { return drafter_ != nullptr && !options_.helper_cell; }

  std::uint64_t loop_bytes(const Loaded& model) const {
    const trace::HeaderSource source(prompt_header(model));
    std::uint64_t most = 0;
    for (const trace::Cut& cut : options_.cuts)
      most = std::max(most, sim::estimate_loop_bytes(sequence_at(source, cut), model.config, request_));
    return most;
  }
  std::uint64_t prompt_bytes(const Loaded& model) const {
    return model_.prompt.ids.size() * model.config.n_layers *
           (std::uint64_t{model.config.n_heads} + 2ULL * model.config.n_kv_heads) * model.config.head_dim *
           sizeof(float);
  }

  /// In every way. The prompt's references and documents are run once for all of them.
  void add_assembled_rows(const trace::MemoryTrace& whole,
                          std::vector<std::vector<std::vector<Value>>>& by_item, Progress& progress) {
    std::vector<std::vector<sim::ReferenceRun>> references(options_.cuts.size());
    std::optional<Placed> placed;
    const sim::Assembly* latest = nullptr;
    for (const sim::Assembly& assembly : options_.assemblies) {
      if (latest == nullptr || !same_origins(*latest, assembly))
        placed.emplace(place(whole, assembly, progress));
      latest = &assembly;
      const sim::AssembledPrompt prompt =
          sim::assemble_prompt(placed->trace, load(items_.front()).ids, placed->pieces, model_.config,
                               model_.weights, assembly, positions_, options_.threads, progress);
      if (options_.scope == AnswerScope::seam) {
        for (std::vector<Value>& row :
             seam_rows(items_.front(), whole.header().model.name, assembly.name,
                       sim::seam_errors(prompt.trace, whole, placed->pieces, options_.threads)))
          by_item.front().push_back(std::move(row));
        continue;
      }
      for (std::size_t cut = 0; cut < options_.cuts.size(); ++cut) {
        request_.assembled = {&whole, assembly.name, prompt.computed, &references[cut]};
        add_rows(options_.cuts[cut], prompt.trace, whole, by_item, progress);
      }
    }
  }

  struct Placed {
    std::vector<DocumentRuns::Run> runs;
    std::vector<sim::Piece> pieces;
    trace::MemoryTrace trace;
  };
  /// The pieces that a way takes, where they stand in the first item's prompt.
  Placed place(const trace::MemoryTrace& whole, const sim::Assembly& assembly, Progress& progress) const {
    std::vector<DocumentRuns::Run> runs;
    std::vector<sim::Piece> pieces;
    for (PieceOrigin& origin : origins(assembly)) {
      runs.push_back(run_of(std::move(origin.ids), whole.header().model.inv_freq, progress));
      pieces.push_back(std::move(origin.piece));
      pieces.back().alone = runs.back().get();
    }
    model_.documents.keep(kKeptPrompts * whole.header().n_tokens());
    if (assembly.choice == sim::Assembly::Choice::across)
      sim::choose_across(pieces, assembly.alpha, options_.threads);
    trace::MemoryTrace trace = sim::place_pieces(whole, pieces, options_.threads);
    return {std::move(runs), std::move(pieces), std::move(trace)};
  }

  /// `prompt`: what cells rank and attend; `whole`: the run of the whole prompt.
  void add_rows(const trace::Cut& cut, const trace::MemoryTrace& prompt, const trace::MemoryTrace& whole,
                std::vector<std::vector<std::vector<Value>>>& by_item, Progress& progress) {
    const trace::Sequence sequence = sequence_at(prompt, cut);
    // Of the model whose caches the cells are.
    std::optional<trace::Sequence> of_drafter;
    if (drafter_ != nullptr) of_drafter.emplace(sequence_at(*draft_prompt_, cut));
    const trace::Sequence& of_cells = drafts_apart() ? *of_drafter : sequence;
    sim::TableFiles tables(of_cells, items_.front().id);
    add_second_pass(of_cells, tables, progress);
    request_.tables = &tables;
    const std::vector<std::int32_t>& ids = load(items_.front()).ids;
    if (drafter_ != nullptr)
      (drafts_apart() ? request_.drafter : request_.helper) = {&*of_drafter, draft_ids_, &drafter_->config,
                                                               &drafter_->weights};
    std::vector<sim::LoopOutcome> outcomes =
        sim::closed_loop(sequence, ids, model_.config, model_.weights, request_, progress);
    request_.drafter.reset();
    request_.helper.reset();
    for (std::size_t i = 0; i < items_.size(); ++i) {
      for (std::vector<Value>& row :
           rows_of(i, i == 0 ? &whole : nullptr, sequence, of_cells, outcomes[i], progress))
        by_item[i].push_back(std::move(row));
      if (options_.decisions)
        options_.decisions(sim::decisions_of(sequence, request_, std::move(outcomes[i])));
    }
  }

  std::vector<PieceOrigin> origins(const sim::Assembly& assembly) const {
    const WorkloadItem& item = items_.front();
    if (item.documents.empty() && item.before.empty())
      usage_error("marks no documents to put a prompt together of", item.id,
                  "Make prompts of the kind documents, or write the field: traces/workloads/README.md.");
    const capture::Prompt& prompt = load(item);
    return piece_origins(prompt.ids, capture::earlier_ids(item, *prompt.tokenizer),
                         capture::document_tokens(item, prompt.ids, *prompt.tokenizer),
                         capture::begin_tokens(prompt.ids, *prompt.tokenizer), assembly, item.id);
  }

  /// Leaves of the first item's documents those that its question asks for.
  void drop_documents(capture::Prompt& prompt) const {
    const WorkloadItem& item = items_.front();
    if (item.documents.empty())
      usage_error("marks no documents to draft from", item.id, "Make prompts of the kind documents.");
    std::vector<std::string> texts;
    for (const workload::ByteSpan& document : item.documents)
      texts.push_back(item.prompt.substr(document.begin, document.end - document.begin));
    const std::vector<std::size_t> kept =
        retrieved_documents(texts, item.prompt.substr(item.documents.back().end), options_.draft_documents);
    const std::vector<workload::ByteSpan> places =
        capture::document_tokens(item, prompt.ids, *prompt.tokenizer);
    const auto drop = [](auto& from, const workload::ByteSpan& place) {
      if (!from.empty())
        from.erase(from.begin() + static_cast<std::ptrdiff_t>(place.begin),
                   from.begin() + static_cast<std::ptrdiff_t>(place.end));
    };
    for (std::size_t i = places.size(); i-- > 0;) {
      if (std::ranges::binary_search(kept, i)) continue;
      drop(prompt.ids, places[i]);
      drop(prompt.part_flags, places[i]);
    }
  }

  /// Kept, or made. `rotation`: frequencies of the model in a text as long as the prompt.
  DocumentRuns::Run run_of(std::vector<std::int32_t> ids, const std::vector<float>& rotation,
                           Progress& progress) const {
    model_.prompt.ids = std::move(ids);
    model_.prompt.part_flags.clear();
    return model_.documents.find({model_.prompt.ids, rotation, request_.elem, options_.prefill_chunk}, [&] {
      return capture::run_prompt(model_.prompt, model_.config, model_.weights, run_options(), progress);
    });
  }

  /// Where a cell ranks by it: the model repeats what stands before the cut.
  void add_second_pass(const trace::Sequence& sequence, sim::TableFiles& tables, Progress& progress) const {
    if (sequence.model().has_windows() || std::ranges::none_of(options_.cells, needs_second_pass)) return;
    const Loaded& model = drafts_apart() ? *drafter_ : model_;
    capture::SecondPass pass =
        capture::second_pass(sequence, *model_.prompt.tokenizer, model.config, model.weights,
                             {.elem = request_.elem,
                              .positions = positions_,
                              .prefill_chunk = options_.prefill_chunk,
                              .threads = options_.threads,
                              .queries = std::ranges::any_of(options_.cells, needs_repeated_queries)},
                             progress);
    const std::string name = std::to_string(pass.prompt);
    const std::vector<std::size_t> dims{pass.group, policy::Tables::kPositions};
    tables.give(name + "/attention", dims, std::move(pass.attention));
    tables.give(name + "/scaled", dims, std::move(pass.scaled));
    if (!pass.queries.empty())
      tables.give(name + "/queries", {pass.group, policy::Tables::kPositions, model.config.head_dim},
                  std::move(pass.queries));
  }

  const capture::Prompt& load(const WorkloadItem& item) const {
    load_item(item, model_.prompt);
    return model_.prompt;
  }

  /// Of the first item's prompt.
  trace::Header prompt_header(const Loaded& model) const {
    const capture::Prompt& prompt = load(items_.front());
    trace::Header header =
        trace::plain_header(model::describe_model(model.config, model.weights, model.model_dir, positions_),
                            prompt.ids.size(), 0);
    capture::describe_tokens(header, prompt.ids, prompt, model.config);
    if (output_weights()) header.output_elem = Elem::f32;
    if (surprises()) header.token_logprob.assign(header.n_tokens(), 0.0F);
    return header;
  }

  void check_context() {
    const std::uint64_t prompt = model_.prompt.ids.size(),
                        more = most_new_tokens(request_, prompt, context_tokens(model_.prompt));
    const bool edited = std::ranges::any_of(options_.assemblies, [](const sim::Assembly& assembly) {
      return assembly.choice == sim::Assembly::Choice::edit && assembly.tokens == 0;
    });
    const std::uint64_t before =
        edited ? capture::earlier_ids(items_.front(), *model_.prompt.tokenizer).size() : 0;
    positions_ = std::max(prompt + more, before);
    for (const Loaded* model : {&model_, drafter_}) {
      if (model == nullptr) continue;
      try {
        capture::check_context(prompt, more, model->config.max_positions);
        capture::check_context(before, 0, model->config.max_positions);
      } catch (const Error& error) {
        usage_error(error.what(), items_.front().id + (model == drafter_ ? ", " + model->model_dir : ""));
      }
      model::check_rope_regime(model->config.rope, prompt, positions_);
    }
    const auto vocabulary = [](const Loaded& model) { return model.config.vocab_size; };
    if (drafter_ != nullptr && std::ranges::any_of(model_.prompt.ids, [&](std::int32_t id) {
          return static_cast<std::uint32_t>(id) >= vocabulary(*drafter_);
        }))
      input_error("the prompt has tokens that " + drafter_->model_dir + " does not know", items_.front().id);
  }

  bool surprises() const { return std::ranges::any_of(options_.cells, needs_surprises); }
  bool output_weights() const { return std::ranges::any_of(options_.cells, projects_outputs); }

  trace::Sequence sequence_at(const trace::Source& source, const trace::Cut& cut) const {
    try {
      return trace::Sequence(source, 0, cut);
    } catch (const Error& error) {
      throw Error(error.kind(), error.what(), items_.front().id, "");
    }
  }

  /// The full cache reads the prompt of an item, unless it is known already, and an answer to it.
  trace::MemoryTrace run(const WorkloadItem& item, std::vector<std::int32_t> answer,
                         const trace::MemoryTrace* known, Progress& progress) const {
    capture::PromptRunOptions options = options_of(model_);
    options.answer = std::move(answer);
    options.known = known;
    return capture::run_prompt(load(item), model_.config, model_.weights, options, progress);
  }
  capture::PromptRunOptions options_of(const Loaded& model) const {
    capture::PromptRunOptions options = run_options();
    options.model_dir = model.model_dir;
    options.output_weights = output_weights();
    options.logprobs = surprises();
    return options;
  }
  capture::PromptRunOptions run_options() const {
    return {.model_dir = model_.model_dir,
            .elem = request_.elem,
            .positions = positions_,
            .prefill_chunk = options_.prefill_chunk,
            .threads = options_.threads};
  }

  /// `known`: a run of the item's prompt, if there is one.
  std::vector<std::vector<Value>> rows_of(std::size_t i, const trace::MemoryTrace* known,
                                          const trace::Sequence& sequence, const trace::Sequence& of_cells,
                                          const sim::LoopOutcome& outcome, Progress& progress) const {
    const WorkloadItem& item = items_[i];
    const model::Tokenizer& tokenizer = *model_.prompt.tokenizer;
    const trace::Model& cells_model = of_cells.model();
    const AnswerItem described{
        .item = item.id,
        .workload = item.kind,
        .model = sequence.model().name,
        .turn = item.turn,
        .answers = item.answers,
        .text = [&](const std::vector<std::int32_t>& ids) { return well_formed(tokenizer.decode(ids)); },
        .right = right_answer(item),
        .lanes = std::uint64_t{cells_model.n_layers} * cells_model.n_kv_heads,
        .token_bytes = sim::token_bytes(of_cells),
        .full_token_bytes = sim::token_bytes(sequence),
        .draft_documents = options_.draft_documents,
        .drafter = drafter_ == nullptr ? "" : draft_prompt_->header().model.name};
    std::vector<std::vector<Value>> rows = row_maker(options_.scope)(described, request_, outcome);
    if (options_.losses) add_losses(i, known, sequence.cut(), outcome, rows, progress);
    return rows;
  }

  /// Replays the full cache's run on the tokens of the answer, or on those it generated itself.
  void add_losses(std::size_t i, const trace::MemoryTrace* known, const trace::Cut& cut,
                  const sim::LoopOutcome& outcome, std::vector<std::vector<Value>>& rows,
                  Progress& progress) const {
    std::vector<std::int32_t> fed = request_.turns[i].answer;
    if (!options_.force_answer || fed.empty()) fed = outcome.references.front().tokens;
    const std::vector<std::vector<Value>> losses = losses_of(i, known, cut, std::move(fed), progress);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::vector<Value>& of_cell = losses[row / request_.modes.size()];
      rows[row].insert(rows[row].end(), of_cell.begin(), of_cell.end());
    }
  }

  /// A row of loss_columns() per cell.
  std::vector<std::vector<Value>> losses_of(std::size_t i, const trace::MemoryTrace* known,
                                            const trace::Cut& cut, std::vector<std::int32_t> fed,
                                            Progress& progress) const {
    if (!fed.empty()) fed.pop_back();  // nothing is read after the last token
    const trace::MemoryTrace recorded = run(items_[i], std::move(fed), known, progress);
    sim::Request replay;
    replay.cells = options_.cells;
    replay.seed = options_.seed;
    replay.threads = options_.threads;
    replay.tables = request_.tables;
    return replayed_losses(trace::Sequence(recorded, 0, cut), replay);
  }

  const Loaded& model_;
  const Loaded* const drafter_;
  std::optional<trace::MemoryTrace> draft_prompt_;  // the first item's, of the model that drafts
  std::vector<std::int32_t> draft_ids_;             // its tokens
  const std::span<const WorkloadItem> items_;
  const EvaluationOptions& options_;
  sim::LoopRequest request_;
  std::uint64_t positions_ = 0;  // that the run reaches at most
};

}  // namespace

std::uint64_t Evaluation::estimate_bytes(std::span<const WorkloadItem> items,
                                         const EvaluationOptions& options) const {
  const ContextRun run(*loaded_, drafter_.get(), items, options);
  if (!run.apart()) return run.bytes();
  std::uint64_t most = 0;
  for (const WorkloadItem& item : items) most = std::max(most, estimate_bytes({&item, 1}, options));
  return most;
}

std::vector<std::vector<Value>> Evaluation::losses(const WorkloadItem& item, const EvaluationOptions& options,
                                                   Progress& progress) const {
  return ContextRun(*loaded_, nullptr, {&item, 1}, options).losses(progress);
}

PromptSize Evaluation::prompt_size(const WorkloadItem& item, const EvaluationOptions& options) const {
  return ContextRun(*loaded_, nullptr, {&item, 1}, options).of_prompt([](const trace::Sequence& sequence) {
    return PromptSize{sequence.prompt_length(), sim::prompt_bytes(sequence)};
  });
}

std::vector<bool> Evaluation::room_for_all(const WorkloadItem& item, const EvaluationOptions& options) const {
  return ContextRun(*loaded_, nullptr, {&item, 1}, options).of_prompt([&](const trace::Sequence& sequence) {
    std::vector<bool> out;
    for (const sim::Cell& cell : options.cells)
      out.push_back(sim::budget_tokens(cell.budget, sequence, cell.composition) >= sequence.prompt_length());
    return out;
  });
}

std::vector<std::vector<Value>> Evaluation::answer(std::span<const WorkloadItem> items,
                                                   const EvaluationOptions& options, Progress& progress) {
  check_schedules(options);
  check_losses(options);
  ContextRun run(*loaded_, drafter_.get(), items, options);
  if (run.apart()) {
    std::vector<std::vector<Value>> rows;
    for (const WorkloadItem& item : items)
      for (std::vector<Value>& row : answer({&item, 1}, options, progress)) rows.push_back(std::move(row));
    return rows;
  }
  const std::uint64_t bytes = run.bytes();
  most_bytes_ = std::max(most_bytes_, bytes);
  if (options.memory_limit > 0 && bytes > options.memory_limit)
    usage_error(
        "needs about " + bytes_text(bytes) + " of memory, the limit is " + bytes_text(options.memory_limit),
        items.front().id, "Ask for fewer policies, budgets or tokens at once.");
  std::vector<std::vector<Value>> rows = run.rows(progress);
  loaded_->checkpoint.check_unchanged();
  if (drafter_) drafter_->checkpoint.check_unchanged();
  return rows;
}

}  // namespace kvsim::analysis
