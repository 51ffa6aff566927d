// kvsim evaluate: what the model answers when its cache is the policy's.
#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <span>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/loop/context_turns.hpp"
#include "analysis/loop/evaluation.hpp"
#include "analysis/loop/part_rows.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"
#include "tools/options/mistaken_files.hpp"
#include "tools/options/option_numbers.hpp"
#include "traces/capture/chat_prompt.hpp"

namespace kvsim::tools {
namespace {

struct EvaluateOptions : OutputOptions {
  std::string model, workload, fields, item, prompt, answer, trace, sequence, cut = "prompt", mode = "both",
                                                                              force = "answer";
  std::string turns = "requests", positions = "text", prefill = "dense", profile;
  std::string per = "answer", decisions, draft, draft_cache;
  std::vector<std::string> policies, budgets;
  analysis::EvaluationOptions evaluation;
  double least_full = analysis::kLeastFull;
  std::uint64_t answered = 0;  // 0: every prompt
  std::optional<std::uint64_t> max_new_tokens, gamma;
  std::optional<double> temperature;
  bool chat = false, quiet = false;
};

/// The number of a word among those that an option takes.
std::size_t chosen(const std::string& word, const char* option, const std::vector<std::string>& words) {
  const auto found = std::ranges::find(words, word);
  if (found == words.end()) usage_error("unknown choice '" + word + "'", option, suggestion(word, words));
  return static_cast<std::size_t>(found - words.begin());
}

/// dense, chunked:N, or ways to put prompts together.
void choose_prefill(const std::string& prefill, analysis::EvaluationOptions& evaluation) {
  if (prefill == "dense") return;
  const std::string chunked = "chunked:";
  if (!prefill.starts_with("chunked")) {
    for (const std::string& way : comma_list(prefill))
      evaluation.assemblies.push_back(sim::parse_assembly(way, "--prefill"));
    return;
  }
  const auto tokens = prefill.starts_with(chunked) ? tokens_of(prefill.substr(chunked.size())) : std::nullopt;
  if (!tokens || *tokens == 0)
    usage_error("unknown choice '" + prefill + "'", "--prefill", "It is dense, or chunked:N with N tokens.");
  evaluation.prefill_tokens = *tokens;
}

/// What is to be answered, before the model is loaded.
void check_prompts(const EvaluateOptions& options) {
  const int given =
      (options.workload.empty() ? 0 : 1) + (options.prompt.empty() ? 0 : 1) + (options.trace.empty() ? 0 : 1);
  if (given != 1) usage_error("give a workload, a prompt or a recorded run", "--workload, --prompt, --trace");
  if (options.chat && !options.trace.empty())
    usage_error("puts a text into the model's chat template", "--chat", "A recorded run is taken as it is.");
  if (!options.sequence.empty() && options.trace.empty())
    usage_error("chooses from a recorded run", "--sequence", "Add --trace FILE.");
  if (!options.trace.empty() && !options.answer.empty())
    usage_error("is of a prompt; a recorded run has its own", "--answer");
  if (!options.trace.empty() && !options.item.empty())
    usage_error("names an item of a workload", "--item", "Say --sequence N.");
  if (!options.prompt.empty()) require_prompt_file(options.prompt);
}

std::vector<capture::WorkloadItem> items_of(const std::string& text, const std::string& path,
                                            const EvaluateOptions& options) {
  if (!options.answer.empty()) usage_error("is of a prompt; a workload has its own", "--answer");
  const FieldNames fields = capture::parse_line_fields(options.fields);
  if (options.item.empty()) return capture::parse_workload(text, path, fields);
  return {capture::parse_workload_item(text, path, options.item, fields)};
}

std::vector<capture::WorkloadItem> items_of(const EvaluateOptions& options,
                                            const analysis::Evaluation& model) {
  if (!options.trace.empty()) {
    std::vector<capture::WorkloadItem> items;
    for (const ChosenSequence& chosen : chosen_sequences(options.trace, options.sequence))
      for (capture::WorkloadItem& item : model.recorded(chosen.sequence, chosen.name))
        items.push_back(std::move(item));
    return items;
  }
  if (!options.workload.empty())
    return items_of(read_file(options.workload, capture::kMaxWorkloadBytes), options.workload, options);
  std::string text = read_file(options.prompt, model::kMaxTextBytes);
  if (capture::is_workload(text, options.prompt)) return items_of(text, options.prompt, options);
  if (!options.item.empty()) usage_error("names an item of a workload", "--item", "Add --workload FILE.");
  capture::WorkloadItem item;
  item.id = options.prompt;
  item.prompt = std::move(text);
  if (!options.answer.empty()) {
    item.answers = {options.answer};
    item.expect = workload::Expect::first;
  }
  return {item};
}

/// Through the chat template if asked; and what the prompts' texts lack or have twice.
void prepare_texts(std::vector<capture::WorkloadItem>& items, const EvaluateOptions& options,
                   const analysis::Evaluation& model) {
  std::vector<std::string> notes;
  capture::apply_chat(items, options.model, options.chat, notes);
  if (options.quiet) notes.clear();
  notes.push_back(capture::doubled_begin_note(items, model.tokenizer()));
  if (options.max_new_tokens)
    notes.push_back(analysis::cut_short_note(items, model.tokenizer(), *options.max_new_tokens));
  for (const std::string& text : notes)
    if (!text.empty()) note(text);
}

/// Reasons for cells without numbers, each once.
void tell_skipped(const analysis::Records& records) {
  const std::size_t skipped = records.column("skipped");
  std::vector<std::string> told;
  for (const std::vector<analysis::Value>& row : records.rows)
    if (const std::string& why = analysis::text(row[skipped]); !why.empty()) add_once(told, why);
  for (const std::string& why : told) note("skipped: " + why);
}

/// Parts of policies that changed nothing, each once; of how many prompts, where not of all.
void tell_idle(const analysis::Records& records) {
  const auto field = [&](const std::vector<analysis::Value>& row, const char* key) {
    return analysis::text(row[records.column(key)]);
  };
  std::map<std::string, std::map<std::string, std::set<std::string>>> prompts;  // by cell, then text
  std::map<std::string, std::set<std::string>> all;
  for (const std::vector<analysis::Value>& row : records.rows) {
    const std::string cell =
        field(row, "policy") + " at " + field(row, "budget") + ", cut " + field(row, "cut");
    all[cell].insert(field(row, "item"));
    if (const std::string told = field(row, "idle"); !told.empty())
      prompts[cell][told].insert(field(row, "item"));
  }
  for (const auto& [cell, texts] : prompts)
    for (const auto& [told, of] : texts)
      note(cell + ": " + told +
           (of.size() == all[cell].size() ? ""
                                          : " (" + std::to_string(of.size()) + " of " +
                                                std::to_string(all[cell].size()) + " prompts)"));
}

/// What ends the drawing of prompts is that the full cache answers them.
void check_answered(const EvaluateOptions& options, const analysis::EvaluationOptions& evaluation) {
  if (options.answered == 0) return;
  const bool greedy = std::ranges::find(evaluation.modes, sim::LoopMode::greedy) != evaluation.modes.end();
  if (!greedy || evaluation.scope != analysis::AnswerScope::answer)
    usage_error("counts answers that the full cache generates", "--answered",
                "Say --mode both or greedy, and leave --per out.");
}

/// Whether the full cache has answered `answered` questions of a workload, at each of `cuts` cuts.
bool enough_answered(const analysis::Records& rows, const std::string& workload, std::size_t cuts,
                     std::uint64_t answered) {
  const std::vector<analysis::FullAnswers> all = analysis::full_answers(rows);
  return std::ranges::count_if(all, [&](const analysis::FullAnswers& each) {
           return each.workload == workload && each.right >= answered;
         }) == static_cast<std::ptrdiff_t>(cuts);
}

/// Workloads that ended before the full cache had answered as many as asked for.
void tell_too_few(const analysis::Records& rows, std::uint64_t answered) {
  for (const analysis::FullAnswers& each : analysis::full_answers(rows))
    if (each.right < answered)
      note("the full cache answers " + std::to_string(each.right) + " of all " + std::to_string(each.asked) +
           " questions of " + each.workload + " at cut " + each.cut + ", and --answered asks for " +
           std::to_string(answered) + ": make more with kvsim workload --count");
}

/// Where decisions go: one file of one prompt at one cut, as those of a replay.
void check_decisions(const EvaluateOptions& options, std::size_t items, std::size_t cuts) {
  if (options.decisions.empty()) return;
  if (items > 1 || cuts > 1)
    usage_error("decisions are those of one prompt at one cut", "--decisions",
                "Choose them: --item ID, --cut CUT");
}

/// Where documents begin, a prompt is put together, and nobody answers.
void check_seams(const EvaluateOptions& options, const analysis::EvaluationOptions& evaluation) {
  if (evaluation.scope != analysis::AnswerScope::seam) return;
  if (evaluation.assemblies.empty())
    usage_error("is of prompts that are put together of documents", "--per seam",
                "Add --prefill none, or another way to put them together.");
  if (!options.decisions.empty()) usage_error("nobody answers", "--decisions", "Leave --per seam out.");
}

/// Cells that draft have rows of their own, and no answers to be judged: those are the full cache's.
void choose_drafts(const EvaluateOptions& options, analysis::EvaluationOptions& evaluation) {
  if (options.mode != "draft") {
    for (const auto& [given, name] :
         {std::pair{options.gamma.has_value(), "--gamma"}, std::pair{!options.draft.empty(), "--draft"},
          std::pair{!options.draft_cache.empty(), "--draft-cache"},
          std::pair{evaluation.draft_documents > 0, "--draft-documents"},
          std::pair{evaluation.lead > 0, "--lead"}})
      if (given) usage_error("drafts tokens", name, "Add --mode draft.");
    if (options.temperature)
      usage_error("is of drafts that are sampled", "--temperature", "Add --mode draft.");
    return;
  }
  if (evaluation.scope == analysis::AnswerScope::layer || evaluation.scope == analysis::AnswerScope::seam)
    usage_error("a draft is verified token by token", "--per " + options.per, "Say --per token.");
  evaluation.scope = evaluation.scope == analysis::AnswerScope::answer ? analysis::AnswerScope::draft
                                                                       : analysis::AnswerScope::drafted_token;
  if (evaluation.protocol == sim::TurnProtocol::own)
    usage_error("what a cell answers itself is what the full cache verifies", "--turns own",
                "Say --turns golden.");
  for (const auto& [given, name] :
       {std::pair{!options.decisions.empty(), "--decisions"},
        std::pair{options.evaluation.losses, "--losses"}, std::pair{options.answered > 0, "--answered"}})
    if (given) usage_error("means nothing to drafts", name, "Leave it out.");
  evaluation.gamma = options.gamma.value_or(evaluation.gamma);
  evaluation.temperature = options.temperature.value_or(0);
}

/// What a draft reads, and how it leads.
void check_rapid(const EvaluateOptions& options, const analysis::EvaluationOptions& evaluation) {
  if (options.draft.empty() && evaluation.draft_documents > 0)
    usage_error("is of the model that drafts", "--draft-documents",
                "Add --draft DIR, which may be the same.");
  if (evaluation.lead > 0 && evaluation.temperature == 0)
    usage_error("is a rule of tokens that are drawn", "--lead", "Add --temperature 1.");
}

/// The draft's own cache, of SPEC@BUDGET: it helps the policies' caches then.
void choose_helper(const EvaluateOptions& options, analysis::EvaluationOptions& evaluation) {
  if (options.draft_cache.empty()) return;
  const char* const where = "--draft-cache";
  if (options.draft.empty()) usage_error("is of the model that drafts", where, "Add --draft DIR.");
  evaluation.helper_cell = analysis::asked_cell(options.draft_cache, where, front_end().policies(), note);
}

/// What is about to run, and what it takes.
void announce(const analysis::Evaluation& model, std::span<const capture::WorkloadItem> items,
              const analysis::EvaluationOptions& evaluation, std::size_t policies, std::size_t budgets) {
  const auto contexts = analysis::by_context(items);
  const auto longest = std::ranges::max_element(contexts, [](const auto& a, const auto& b) {
    return a.front().prompt.size() < b.front().prompt.size();
  });
  // At once, so that an interruption does not end a line of it.
  front_end().announce("cells   " + std::to_string(evaluation.cells.size()) + " (policies " +
                       std::to_string(policies) + ", budgets " + std::to_string(budgets) + ") on " +
                       std::to_string(items.size()) + (items.size() == 1 ? " prompt" : " prompts") +
                       "\nrun     about " + bytes_text(model.estimate_bytes(*longest, evaluation)) +
                       ", seed " + std::to_string(evaluation.seed) + '\n');
}

void run_evaluate(EvaluateOptions& options) {
  const analysis::Format format = chosen_format(options);
  analysis::EvaluationOptions evaluation = options.evaluation;
  evaluation.scope =
      static_cast<analysis::AnswerScope>(chosen(options.per, "--per", {"answer", "token", "layer", "seam"}));
  evaluation.modes = options.mode == "draft" ? std::vector{sim::LoopMode::draft}
                                             : analysis::parse_loop_modes(options.mode, "--mode");
  evaluation.cuts = analysis::asked_cuts(options.cut, note);
  evaluation.force_answer = chosen(options.force, "--force", {"answer", "full"}) == 0;
  evaluation.protocol =
      static_cast<sim::TurnProtocol>(chosen(options.turns, "--turns", {"requests", "golden", "own"}));
  evaluation.positions = static_cast<sim::LoopPositions>(
      chosen(options.positions, "--positions", {"text", "cache-step", "cache-once"}));
  choose_prefill(options.prefill, evaluation);
  check_seams(options, evaluation);
  choose_drafts(options, evaluation);
  choose_helper(options, evaluation);
  check_rapid(options, evaluation);
  if (!options.profile.empty())
    evaluation.profile_dense = chosen(options.profile, "--profile", {"dense"}) == 0;
  const std::vector<analysis::AskedPolicy> policies =
      analysis::asked_policies(options.policies, front_end().policies(), note);
  const std::vector<sim::Budget> budgets = analysis::asked_budgets(options.budgets, policies, note);
  analysis::tell_many_cells(policies.size() * budgets.size(), note);
  evaluation.cells = analysis::cells_of(policies, budgets);
  if (!options.decisions.empty() && options.decisions == options.output)
    usage_error("results and decisions cannot share a file", options.output);
  if (!options.decisions.empty()) refuse_output(options.decisions, options.overwrite);
  FormattedOutput output(format, options.output, options.overwrite);
  if (!options.decisions.empty())
    evaluation.decisions = [&](const sim::Decisions& decisions) {
      sim::write_decisions(options.decisions, decisions, options.overwrite);
    };
  options.model = checkpoint_at(options.model);
  check_prompts(options);
  analysis::Evaluation model(options.model);
  if (!options.draft.empty()) model.draft_with(options.draft = checkpoint_at(options.draft));
  std::vector<capture::WorkloadItem> items = items_of(options, model);
  prepare_texts(items, options, model);
  evaluation.max_new_tokens =
      options.max_new_tokens.value_or(analysis::tokens_to_generate(items, model.tokenizer()));
  check_decisions(options, items.size(),
                  evaluation.cuts.size() * std::max<std::size_t>(evaluation.assemblies.size(), 1));
  check_answered(options, evaluation);
  if (!options.quiet)
    for (const std::string& text : model.notes()) note(text);

  if (!options.quiet) announce(model, items, evaluation, policies.size(), budgets.size());

  analysis::Document document{
      .analysis = "evaluate", .traces = {}, .records = {analysis::columns_of(evaluation), {}}};
  document.settings = {{"model", options.model},
                       {"force", options.force},
                       {"max_new_tokens", evaluation.max_new_tokens},
                       {"seed", evaluation.seed}};
  if (!options.draft.empty()) document.settings.emplace_back("draft", options.draft);
  {
    Progress progress;
    const std::shared_ptr<void> shown = front_end().follow(progress, "evaluate", options.quiet);
    const auto all = static_cast<double>(items.size());
    double done = 0;
    for (const std::span<const capture::WorkloadItem> of_context : analysis::by_context(items)) {
      const auto some = static_cast<double>(of_context.size());
      if (options.answered > 0 && enough_answered(document.records, of_context.front().kind,
                                                  evaluation.cuts.size(), options.answered)) {
        done += some;
        continue;
      }
      progress.begin_part(done / all, some / all);
      for (std::vector<analysis::Value>& row : model.answer(of_context, evaluation, progress))
        document.records.rows.push_back(std::move(row));
      done += some;
    }
  }
  if (evaluation.scope == analysis::AnswerScope::seam) return output.commit(document);
  tell_skipped(document.records);
  if (options.answered > 0) tell_too_few(document.records, options.answered);
  if (evaluation.scope == analysis::AnswerScope::draft && format == analysis::Format::table) {
    document.notes = {
        "tokens per round: what a verification of " + std::to_string(evaluation.gamma) +
            " drafted tokens yields; without drafts it is 1. overlap: sum of min(p, q).",
        "draft share: what a drafting step reads of keys and values, of the full cache's. The text is the full",
        "cache's, whatever drafts. low, high: 95 % bootstrap intervals over items."};
    document.records = analysis::draft_summary(document.records);
    analysis::drop_empty_columns(document.records);
  }
  if (evaluation.scope != analysis::AnswerScope::answer) return output.commit(document);
  if (!options.quiet) tell_idle(document.records);
  const std::vector<std::string> unranked = analysis::unranked_notes(document.records, options.least_full);
  if (format == analysis::Format::table) {
    document.notes = {
        "right: answers by the workload's own rule, generated greedily; right full: of the full cache; kept:",
        "right among the prompts that the full cache answers.",
        "kl, same top: next-token predictions against the full cache's on the same tokens. low, high: 95 %",
        "bootstrap intervals over items. Best first at each cut and budget. Every row: --format csv."};
    document.best_first = unranked.empty();
    document.notes.insert(document.notes.end(), unranked.begin(), unranked.end());
    document.records = analysis::answer_summary(document.records, options.least_full);
    analysis::drop_empty_columns(document.records);
  } else {
    for (const std::string& text : unranked) note(text);
  }
  output.commit(document);
}

}  // namespace

void add_evaluate_command(Command app) {
  Command command = app.add_subcommand(
      "evaluate", "Let the model answer through the compressed cache, policy by policy", R"(Examples:
  kvsim evaluate --model DIR --workload needles.jsonl --policy snapkv --policy h2o --budget 10%,25%
  kvsim evaluate --model DIR --workload needles.jsonl --policy all --budget 25% --cut question -o answers.csv
  kvsim evaluate --model DIR --prompt question.txt --answer ' Paris' --policy keydiff --budget 50%
)");
  const auto options = std::make_shared<EvaluateOptions>();
  analysis::EvaluationOptions& evaluation = options->evaluation;
  command.add_required("--model", options->model, "DIR",
                       "Folder with config.json, safetensors and a tokenizer, or a GGUF file");
  command.add_option("--workload", options->workload, "FILE",
                     "Prompts and answers, as kvsim workload or benchmarks write them (.jsonl, .json, .csv)");
  command.add_option("--fields", options->fields, "LIST",
                     "Other names of its fields, such as prompt=instruction,answers=gold");
  command.add_option("--item", options->item, "ID", "Only this one of the workload");
  command.add_flag("--chat", options->chat,
                   "Put prompts into the model's chat template, as kvsim capture does");
  command.add_option("--prompt", options->prompt, "FILE", "One prompt instead: UTF-8 text");
  command.add_option("--answer", options->answer, "TEXT",
                     "What its answer must begin with, with its leading space");
  command.add_required("--policy", options->policies, "POLICY",
                       "As of kvsim replay; oracles need a recorded run");
  command.add_option("--budget", options->budgets, "LIST",
                     "As of kvsim replay: 128, 25%, 64MiB; full needs none");
  command.add_option(
      "--trace", options->trace, "TRACE",
      "A recorded run of this model instead: its prompt and answer, turns of a chat, questions of\n"
      "a tree");
  command.add_option("--sequence", options->sequence, "N", kSequenceHelp);
  command.add_option(
      "--cut", options->cut, "LIST",
      "Where the prompt ends for policies; what follows is fed through the compressed cache:\n"
      "prompt (the question is known), question (it is not), or a number of tokens; a comma list");
  command.add_option("--mode", options->mode, "both|teacher|greedy|draft",
                     "teacher (all caches are fed the same tokens), greedy (each generates its own), both,\n"
                     "or draft (each drafts tokens, which the full cache verifies)");
  command.add_option("--draft", options->draft, "DIR",
                     "Another checkpoint of the same vocabulary, which drafts through the policies' caches\n"
                     "(default: the model itself)");
  command.add_option(
      "--draft-cache", options->draft_cache, "SPEC@BUDGET",
      "TriForce: DIR drafts through this cache, token by token, for the policies' caches of the\n"
      "model, which draft for the full one: streaming_llm(sinks=16)@256");
  command.add_option("--draft-documents", evaluation.draft_documents, "N",
                     "RAPID: DIR reads only N of the prompt's documents, those that share most with the\n"
                     "question (BM25)");
  command.add_option("--lead", evaluation.lead, "ETA",
                     "RAPID: the draft leads by ETA, so that the text is no longer the full cache's",
                     between(0.0, 1000.0));
  command.add_option("--gamma", options->gamma, "N", "Tokens to draft for each verification (default: 4)",
                     between(std::uint64_t{0}, std::uint64_t{64}));
  command.add_option("--temperature", options->temperature, "T",
                     "Of drafts, which rejection sampling verifies (default: 0, greedy)",
                     between(0.0, 100.0));
  command.add_option(
      "--force", options->force, "answer|full",
      "Tokens of teacher mode: answer (the expected one, where there is one) or full (what the full\n"
      "cache generates)");
  command.add_option(
      "--turns", options->turns, "requests|golden|own",
      "Questions about one context (kinds turns, conversation): requests (they leave no trace for\n"
      "each other), golden (each follows the earlier ones and their expected answers) or own (...\n"
      "and what the cell answered itself)");
  command.add_option(
      "--prefill", options->prefill, "WAY",
      "dense (the prompt is processed once, with full attention), chunked:N (through the cache,\n"
      "which is cut after every N tokens), or ways to put it together of documents, each run alone,\n"
      "by what is computed again in the prompt: none, epic:N (the first N tokens of each),\n"
      "cacheblend:P%, lmcache:P% (those whose values, keys in layer 1 deviate most;\n"
      ":bottom_right behind them: with the mask of their code), cachecraft:A (documents come from the\n"
      "prompt with them in reverse order; A times what Cache-Craft asks for), all; or after an\n"
      "edit, computing what is new: pie (of its field before) or pie:N (its document N)");
  command.add_option("--profile", options->profile, "",
                     "dense: an allocation that measures the prompt does so in a pass of its own where the\n"
                     "cache is cut while the prompt arrives");
  command.add_option("--positions", options->positions, "text|cache-step|cache-once",
                     "Rotary positions of keys: text, cache-step (counted in the cache at every step, as\n"
                     "StreamingLLM does) or cache-once (counted in the cache at the cut, as FINCH does)");
  command.add_flag(
      "--losses", evaluation.losses,
      "Losses beside answers: what kvsim replay says of the full cache's run on the same tokens");
  command.add_option(
      "--max-new-tokens", options->max_new_tokens, "N",
      "Tokens to generate (default: those of the longest expected answer, 32 more where it may\n"
      "stand within a sentence, at least 8)",
      token_count());
  command.add_option("--elem", evaluation.elem, "auto|f32|bf16|f16", "Type of the cache");
  command
      .add_option("--prefill-chunk", evaluation.prefill_chunk, "N", "Prompt tokens per pass", token_count())
      .check(between(std::uint64_t{1}, std::uint64_t{1} << 31));
  command.add_option("--least-full", options->least_full, "SHARE",
                     "Share of a workload's questions that the full cache must answer: below, policies are\n"
                     "listed as asked, not best first",
                     between(0.0, 1.0));
  command.add_option("--answered", options->answered, "N",
                     "Answer prompts of each workload until the full cache has answered N of its questions,\n"
                     "over which kept is a share; 0: answer all");
  command.add_option("--seed", evaluation.seed, "N", "Of random policies");
  command.add_option(
      "--per", options->per, "answer|token|layer|seam",
      "A row per: answer, token of each answer (log p, KL, rank), layer (drift of the state), or, with\n"
      "a prompt that is put together, layer and distance from where a document begins (errors of keys,\n"
      "values, attention and outputs, whatever the policy)");
  add_output_options(command, *options);
  command.add_option("--decisions", options->decisions, "FILE",
                     "Store which positions each lane held, and when, as HDF5 (one prompt at one cut)");
  add_threads(command, evaluation.threads, 1024);
  add_memory_limit(command, evaluation.memory_limit, "Refuse a prompt that needs more: 512MiB, 2GiB");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  group_options(command, "Prompts",
                {"--workload", "--fields", "--item", "--answered", "--prompt", "--answer", "--chat",
                 "--trace", "--sequence", "--turns"});
  group_options(
      command, "The model's run",
      {"--mode", "--draft", "--draft-cache", "--draft-documents", "--lead", "--gamma", "--temperature",
       "--force", "--prefill", "--profile", "--positions", "--max-new-tokens", "--elem", "--prefill-chunk"});
  group_options(command, "Results", {"--least-full"});
  command.callback([options] { run_evaluate(*options); });
}

}  // namespace kvsim::tools
