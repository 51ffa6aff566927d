// kvsim cost estimate: bytes and seconds at points of prompts, batches and budgets, or of a recorded run.
#include <filesystem>
#include <ostream>
#include <thread>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/cost/cost_table.hpp"
#include "analysis/drawing/draw_figure.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/results/records.hpp"
#include "sim/base/files.hpp"
#include "sim/base/number_text.hpp"
#include "sim/replay/table_files.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"
#include "tools/options/cost_options.hpp"
#include "tools/printing/cost_document.hpp"

namespace kvsim::tools {
namespace {

constexpr std::string_view kTable = "cost";

std::vector<analysis::Figure> figures_of(const analysis::Records& costs) {
  analysis::FigureTables tables;
  tables.tables[std::string(kTable)] = costs;
  tables.source = "costs.csv";
  std::vector<analysis::Figure> out;
  for (const analysis::FigureKind& kind : analysis::figure_kinds())
    if (std::string_view(kind.table) == kTable)
      for (analysis::Figure& figure : kind.build(tables, {})) out.push_back(std::move(figure));
  return out;
}

std::string extension(const std::string& place) {
  return std::filesystem::path(place).extension().string();
}

bool is_picture(const std::string& place) {
  const std::string end = extension(place);
  return end == ".svg" || end == ".png" || end == ".pdf";
}

/// Figures of costs in a folder stay unless --overwrite is said.
void refuse_to_replace_figures(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    for (const analysis::FigureKind& kind : analysis::figure_kinds())
      if (std::string_view(kind.table) == kTable && entry.path().filename().string().starts_with(kind.name))
        usage_error("exists already", entry.path().string(), "Add --overwrite, or choose another folder.");
}

/// Throws Error(usage) for a picture of another kind than .svg, .png and .pdf, and for a file that exists
/// unless `overwrite`.
void check_plot_place(const std::string& place, bool overwrite) {
  if (place.empty()) usage_error("is empty", "--plot", "Name a folder, or a .svg, .png or .pdf.");
  if (is_picture(place)) return refuse_output(place, overwrite);
  std::error_code failed;
  if (std::filesystem::is_directory(place, failed))
    return overwrite ? void() : refuse_to_replace_figures(place);
  if (std::filesystem::exists(place, failed))
    usage_error("exists already, and is no folder", place, "Choose another name.");
  if (!extension(place).empty())
    usage_error("is no .svg, .png or .pdf", "--plot " + place,
                "A new folder with a dot in its name ends with a slash.");
}

/// Draws rows of costs. `place` ends in .svg, .png or .pdf: the first figure they allow, as that file, which
/// must not exist unless `overwrite`; else every one they allow, into a folder of that name, replacing what
/// stands there (the files of draw_figure()). Throws Error(usage) when they allow none, or without gnuplot.
void draw_costs(const analysis::Records& costs, const std::string& place, bool overwrite) {
  const std::vector<analysis::Figure> figures = figures_of(costs);
  if (figures.empty()) usage_error("no figure can be made of these rows", "--plot " + place);
  if (is_picture(place)) {
    ResultOutput output(place, overwrite);
    return output.commit(analysis::drawing_of(figures.front(), analysis::Theme::light,
                                              analysis::parse_output(extension(place).substr(1))));
  }
  make_folders(place);
  for (const analysis::Figure& figure : figures) analysis::draw_figure(figure, place);
}

struct CostEstimateOptions : CostOptions {
  std::string trace, sequence, cut = "prompt", plot;
  std::vector<std::string> sweep;
  std::optional<double> acceptance, computed;
  std::string documents = "host", draft, draft_cache, predicted_by;
  double draft_acceptance = 0;
  std::uint64_t draft_parallel = 1;
};

/// Values of an axis that --sweep gives; none if it does not.
std::vector<std::string> swept(const CostEstimateOptions& options, const std::string& name) {
  std::vector<std::string> values;
  for (const std::string& text : options.sweep) {
    SweepAxis axis = parse_axis(text);
    if (axis.name != name) continue;
    if (!values.empty()) usage_error("is swept twice", "--sweep " + name);
    values = std::move(axis.values);
  }
  return values;
}

/// What is swept, else what the option of that name says.
template <class Parse>
std::vector<std::uint64_t> numbers(const CostEstimateOptions& options, const std::string& name,
                                   const std::string& given, Parse parse) {
  std::vector<std::uint64_t> out;
  for (const std::string& text : swept(options, name)) out.push_back(parse(text, "--sweep " + name));
  if (!out.empty()) return out;
  return {parse(given, "--" + name)};
}

/// Batches and budgets of the study, those of --sweep included.
analysis::CostStudy study_of(const CostEstimateOptions& options, cost::Model model) {
  analysis::CostStudy study = cost_study(options, std::move(model));
  study.batches =
      numbers(options, "batch", options.batch,
              [](const std::string& text, const std::string& where) { return parse_count(text, where); });
  for (const std::string& list : swept(options, "budget"))
    for (sim::Budget& budget : sim::parse_budgets(list)) study.budgets.push_back(std::move(budget));
  return study;
}

/// Bytes in tokens, so that they mean what they mean without a trace; one with a size of its own holds the
/// same at every budget.
sim::Request request_of(const analysis::CostStudy& study) {
  std::vector<sim::Budget> budgets = study.budgets;
  if (budgets.empty()) budgets.push_back(sim::parse_budget("100%"));
  sim::Request request;
  for (const sim::Budget& budget : budgets)
    for (const policy::Composition& policy : study.policies) {
      if (policy.eviction.spec->own_budget() && &budget != &budgets.front()) continue;
      request.cells.push_back({policy, budget});
      if (budget.unit == sim::Budget::Unit::share) continue;  // of what each layer holds
      sim::Cell& cell = request.cells.back();
      cell.budget.value = static_cast<double>(analysis::budget_tokens(
          budget, study.model, study.serving.layout, policy, study.prompts.front(), study.generates.front()));
      cell.budget.unit = sim::Budget::Unit::tokens;
    }
  request.threads = study.threads > 0 ? study.threads : std::thread::hardware_concurrency();
  return request;
}

void show(const CostEstimateOptions& options, const analysis::CostStudy& study,
          const std::vector<analysis::CostRow>& rows, analysis::Document document) {
  document.notes = notes_of(study, rows);
  document.records = analysis::cost_records(rows);
  document.console = [&](std::ostream& out) {
    analysis::write_cost_table(out, {cost_head(study, {}), rows, document.notes});
  };
  commit_costs(options, options.quiet, document);
  if (!options.plot.empty()) draw_costs(document.records, options.plot, options.overwrite);
}

/// Rows by what the lanes of a recorded run held.
void run_traced(const CostEstimateOptions& options) {
  for (const std::string& text : options.sweep)
    if (parse_axis(text).name != "budget")
      usage_error("the prompt and what is generated are the trace's", "--sweep " + text);
  if (!options.serving.hit_rate.empty())
    usage_error("is what the replay counts", "--hit-rate", "Ask without --trace.");
  if (options.acceptance)
    usage_error("prices drafts by the policies' rules", "--acceptance", "Ask without --trace.");
  if (!options.predicted_by.empty())
    usage_error("prices a prompt by its length", "--predicted-by", "Ask without --trace.");
  if (options.computed) usage_error("prices a prompt by its length", "--computed", "Ask without --trace.");
  if (options.sequence == "all") usage_error("one sequence is priced at a time", "--sequence all");
  const ChosenSequence chosen =
      chosen_sequences(options.trace, options.sequence, {trace::parse_cut(options.cut)}).front();
  const trace::Sequence& sequence = chosen.sequence;
  analysis::CostStudy study = study_of(options, traced_model(sequence, options.trace, options.model));
  study.prompts = {sequence.prompt_length()};
  study.generates = {sequence.decode_length()};
  check_cost_study(study, true);

  sim::Request request = request_of(study);
  const sim::TableFiles tables(sequence);
  request.tables = &tables;
  const sim::Outcome outcome = followed(chosen.name, options.quiet, [&](Progress& progress) {
    return sim::replay(sequence, request, progress);
  });
  chosen.source->require_unchanged();
  analysis::Document document = cost_document(study);
  document.traces.push_back({chosen.name, chosen.source->content_sha256(), sequence.prompt_length(),
                             sequence.decode_length(), sequence.cut().text()});
  document.settings.emplace_back("seed", request.seed);
  const std::vector<analysis::CostRow> rows =
      analysis::replayed_cost_rows(study, chosen.name, request, outcome);
  analysis::refuse_only_skipped(rows);
  show(options, study, rows, std::move(document));
}

/// How the model that drafts is helped by its own cache, and computed on several devices.
void choose_draft(const CostEstimateOptions& options, analysis::CostStudy& study) {
  if (!options.draft_cache.empty())
    study.draft_cache =
        analysis::asked_cell(options.draft_cache, "--draft-cache", front_end().policies(), note);
  study.draft_acceptance = options.draft_acceptance;
  study.draft_parallel = options.draft_parallel;
  if (study.draft_parallel == 1) return;
  const std::string asked = std::to_string(study.draft_parallel);
  if (study.draft_parallel > study.serving.tensor_parallel)
    usage_error("is of devices that hold the model", "--draft-parallel " + asked, "Add --tp " + asked + ".");
  study.drafter->serving.tensor_parallel = 1;  // the rest of a layer is computed by one
}

/// Rows by the policies' rules.
void run_ruled(const CostEstimateOptions& options) {
  analysis::CostStudy study = study_of(options, asked_model(options));
  study.prompts = numbers(options, "prompt-tokens", options.prompt_tokens, required_tokens);
  study.generates = numbers(options, "generate", options.generate, parse_tokens);
  study.acceptance = options.acceptance;
  const auto other = [&](const std::string& name, std::optional<analysis::OtherModel>& to) {
    if (name.empty()) return;
    cost::Model model = cost::find_model(name);
    const cost::Serving serving = parse_serving(options.serving, model);
    to = {std::move(model), serving};
  };
  other(options.draft, study.drafter);
  choose_draft(options, study);
  other(options.predicted_by, study.predictor);
  study.computed = options.computed;
  if (options.documents == "host") study.documents = cost::Tier::host;
  if (options.documents == "ssd") study.documents = cost::Tier::ssd;
  check_cost_study(study, true);
  show(options, study, analysis::cost_rows(study), cost_document(study));
}

/// A sweep would silently take the place of what its option says. Budgets add up.
void refuse_said_twice(Command command, const CostEstimateOptions& options) {
  for (const std::string axis : {"prompt-tokens", "generate", "batch"})
    if (!command.option("--" + axis).empty() && !swept(options, axis).empty())
      usage_error("is swept too", "--" + axis, "Say it once: the sweep may list its value.");
}

/// What is asked of it.
void add_question_options(Command command, CostEstimateOptions& options) {
  command.add_option("--trace", options.trace, "FILE",
                     "Replay the policies on this run: what each lane held is what is priced, and prompt\n"
                     "and generated tokens are the run's; the model is its own unless --model names one of\n"
                     "the same shape");
  command
      .add_option("--sequence", options.sequence, "N",
                  "Of a trace with several: which one, from 0 (default: the first)")
      .needs("--trace");
  command.add_option("--cut", options.cut, "CUT", kCutHelp).needs("--trace");
  command
      .add_option("--sweep", options.sweep, "AXIS=LIST",
                  "Every value with every other: prompt-tokens=8K,32K batch=1..64:x2 generate=64,256\n"
                  "budget=5%..50%:+5% (..:xF multiplies, ..:+S adds)")
      .takes_all_words();
  command.add_option(
      "--acceptance", options.acceptance, "SHARE",
      "Let each policy draft for the full cache, which accepts this share of the tokens (overlap\n"
      "of kvsim evaluate --mode draft): the best number to draft, and the speed-up",
      between(0.0, 1.0));
  command
      .add_option("--draft", options.draft, "MODEL",
                  "Another model drafts, through a cache of each policy; it is named as --model is, and\n"
                  "served as that is (default: the policy's cache of --model drafts)")
      .needs("--acceptance");
  const Option of_cache = command.add_option(
      "--draft-acceptance", options.draft_acceptance, "SHARE",
      "Of the tokens that --draft-cache drafts, those that a policy's cache accepts", between(0.0, 1.0));
  const Option cache = command.add_option(
      "--draft-cache", options.draft_cache, "SPEC@BUDGET",
      "TriForce: MODEL drafts through this cache for the policies' caches of --model, which draft\n"
      "for the full one: streaming_llm(sinks=16)@256; the best number to draft of both levels");
  cache.needs("--draft").needs(of_cache);
  of_cache.needs(cache);
  command
      .add_option("--draft-parallel", options.draft_parallel, "N",
                  "EasySpec: MODEL is computed by one of the devices of --tp, but the attention of N of its\n"
                  "layers at once on as many; each round ends in its pass over what was accepted",
                  between(std::uint64_t{1}, std::uint64_t{64}))
      .needs("--draft");
  command.add_option("--computed", options.computed, "SHARE",
                     "The prompt is put together of documents whose caches are there: this share of it is\n"
                     "computed (computed of kvsim evaluate --prefill), the rest is loaded",
                     between(0.0, 1.0));
  command
      .add_option("--documents", options.documents, "host|ssd|device",
                  "Where their caches lie (default: host)", one_of({"host", "ssd", "device"}))
      .needs("--computed");
  command.add_option(
      "--predicted-by", options.predicted_by, "MODEL",
      "KV Prediction: this small model reads the prompt, and linear maps make the model's cache\n"
      "of its; FLOPs and time to the first token");
  command.add_option("--plot", options.plot, "DIR|FILE",
                     "Draw the figures that the rows allow into this folder, or the first of them as a\n"
                     ".svg, .png or .pdf (kvsim plot draws any of them from csv)");
}

void run_cost_estimate(Command command, const CostEstimateOptions& options) {
  check_cost_output(options);
  if (!command.option("--plot").empty()) check_plot_place(options.plot, options.overwrite);
  refuse_said_twice(command, options);
  if (options.trace.empty()) return run_ruled(options);
  for (const char* fixed : {"--prompt-tokens", "--generate"})
    if (!command.option(fixed).empty()) usage_error("is the trace's", fixed, "Ask without --trace.");
  run_traced(options);
}

}  // namespace

void add_cost_estimate(Command cost) {
  Command command =
      cost.add_subcommand("estimate", "What policies take: bytes by class, seconds by class", R"(Examples:
  kvsim cost estimate --model llama-3-8b --machine a100-80-sxm --prompt-tokens 32K --policy full --policy snapkv --budget 10%
  kvsim cost estimate --model config.json --machine h100-sxm --policy full --policy xkv --budget 2K \
      --sweep prompt-tokens=4K..128K:x2 batch=1,8 -o costs.csv
  kvsim cost estimate --trace run.h5 --machine t4 --policy full --policy xkv --budget 25%
  kvsim cost estimate --model opt-30b --machine t4 --prompt-tokens 512 --batch 8 --offload weights=90% cache=100%
)");
  const auto options = std::make_shared<CostEstimateOptions>();
  add_question_options(command, *options);
  add_cost_options(command, *options);
  command.callback([options, command] { run_cost_estimate(command, *options); });
}

}  // namespace kvsim::tools
