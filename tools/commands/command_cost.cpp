// kvsim cost: bytes and seconds of policies that serve a model on a machine.
#include <algorithm>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "analysis/cost/cost_table.hpp"
#include "analysis/cost/validation_table.hpp"
#include "analysis/requests/replay_request.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/table_files.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/cost_allocators.hpp"
#include "tools/commands/cost_calibration.hpp"
#include "tools/commands/cost_catalogue.hpp"
#include "tools/commands/cost_plots.hpp"
#include "tools/printing/cost_notes.hpp"
#include "tools/printing/formatted_output.hpp"
#include "tools/printing/note.hpp"
#include "tools/printing/progress_display.hpp"
#include "tools/requests/chosen_sequences.hpp"
#include "tools/requests/cost_request.hpp"
#include "tools/requests/traced_model.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  kvsim cost --model llama-3-8b --machine a100-80-sxm --prompt 8K
  kvsim cost --model llama-3-8b --machine a100-80-sxm --prompt 32K --policy full --policy snapkv --budget 10%
  kvsim cost --model config.json --machine h100-sxm --policy full --policy xkv --budget 2K \
      --sweep prompt=4K..128K:x2 batch=1,8 --format csv -o costs.csv
  kvsim cost --model llama-3-8b --machine a100-80-sxm --prompt 32K --batch 8 --policy snapkv --policy kvcrush \
      --fit memory=80GiB ttft=40s tpot=50ms
  kvsim cost --model opt-30b --machine t4 --prompt 512 --batch 8 --offload weights=90% cache=100%
  kvsim cost --calibrate long.h5 short.h5 -o mine.json
  kvsim cost models
  kvsim cost machines
  kvsim cost validate
)";

struct OutputOptions {
  std::string format = "table", output;
  bool quiet = false, overwrite = false;
};

struct Options : OutputOptions {
  std::string model, machine, trace, sequence, cut = "prompt", plot, prompt, generate = "256", batch = "1";
  std::vector<std::string> policies, budgets, sweep, fit, calibrate;
  ServingOptions serving;
  unsigned threads = 0;
};

constexpr std::uint64_t kMostRows = 1'000'000;

/// Values of an axis that --sweep gives; none if it does not.
std::vector<std::string> swept(const Options& options, const std::string& name) {
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
std::vector<std::uint64_t> numbers(const Options& options, const std::string& name, const std::string& given,
                                   Parse parse) {
  std::vector<std::uint64_t> out;
  for (const std::string& text : swept(options, name)) out.push_back(parse(text, "--sweep " + name));
  if (!out.empty()) return out;
  if (given.empty()) usage_error("is missing", "--" + name, "Say --" + name + " 8K, for example.");
  return {parse(given, "--" + name)};
}

std::vector<sim::Budget> budgets_of(const Options& options) {
  std::vector<std::string> lists = options.budgets;
  for (std::string& text : swept(options, "budget")) lists.push_back(std::move(text));
  std::vector<sim::Budget> out;
  for (const std::string& list : lists)
    for (sim::Budget& budget : parse_cost_budgets(list)) out.push_back(std::move(budget));
  return out;
}

/// Everything but the model's and the workload's part.
analysis::CostStudy study_of(const Options& options, cost::Model model) {
  if (options.machine.empty())
    usage_error("is missing", "--machine", "A name of `kvsim cost machines`, or a file.");
  analysis::CostStudy study;
  study.model = std::move(model);
  study.machine = cost::find_machine(options.machine);
  study.serving = parse_serving(options.serving, study.model);
  study.batches =
      numbers(options, "batch", options.batch,
              [](const std::string& text, const std::string& where) { return parse_count(text, where); });
  study.budgets = budgets_of(options);
  study.threads = options.threads;
  for (const analysis::AskedPolicy& asked : analysis::asked_policies(
           options.policies.empty() ? std::vector<std::string>{"full"} : options.policies, policy::builtin(),
           note))
    study.policies.push_back(asked.composition);
  return study;
}

/// What no estimate could be made of, before any is made.
void check(const analysis::CostStudy& study, bool budgets_needed) {
  for (const policy::Composition& policy : study.policies) {
    const policy::PolicySpec& spec = *policy.eviction.spec;
    if (spec.make_oracle)
      usage_error("knows the future: nothing can serve it", "--policy " + policy.name,
                  "What it holds is what its budget says; any policy of that budget holds as much.");
    if (budgets_needed && study.budgets.empty() && !spec.own_budget)
      usage_error("is missing", "--budget",
                  policy.name + " needs to be told how much it may keep: --budget 10%");
  }
  const std::uint64_t prompt = *std::max_element(study.prompts.begin(), study.prompts.end());
  const std::uint64_t generate = *std::max_element(study.generates.begin(), study.generates.end());
  for (const sim::Budget& budget : study.budgets) {
    const std::uint64_t tokens = analysis::budget_tokens(budget, study.model, study.serving.layout, prompt);
    if (generate <= ~prompt && tokens > prompt + generate)
      usage_error("is more than the context of " + std::to_string(prompt) + " + " + std::to_string(generate) +
                      " tokens",
                  "--budget " + budget.text);
  }
  if (study.points() > kMostRows)
    usage_error("these would be " + std::to_string(study.points()) + " rows; at most " +
                    std::to_string(kMostRows) + " are made",
                "--sweep");
}

std::vector<std::string> head_of(const analysis::CostStudy& study, const std::vector<std::string>& more) {
  std::vector<std::string> head{"model    " + analysis::described(study.model),
                                "machine  " + analysis::described(study.machine),
                                "serving  " + described(study)};
  if (study.serving.offload.any())
    head.push_back("offload  " + described(study.serving.offload, study.machine));
  head.insert(head.end(), more.begin(), more.end());
  return head;
}

analysis::Document document_of(const analysis::CostStudy& study) {
  return {.analysis = "cost", .traces = {}, .settings = settings_of(study), .records = {}};
}

/// Budgets in tokens, so that bytes mean what they mean without a trace; one with a size of its own holds the
/// same at every budget.
sim::Request request_of(const analysis::CostStudy& study) {
  std::vector<sim::Budget> budgets = study.budgets;
  if (budgets.empty()) budgets.push_back(sim::parse_budget("100%"));
  sim::Request request;
  for (sim::Budget& budget : budgets) {
    budget.value = static_cast<double>(
        analysis::budget_tokens(budget, study.model, study.serving.layout, study.prompts.front()));
    budget.unit = sim::Budget::Unit::tokens;
    for (const policy::Composition& policy : study.policies)
      if (!policy.eviction.spec->own_budget || &budget == &budgets.front())
        request.cells.push_back({policy, budget});
  }
  request.threads = study.threads > 0 ? study.threads : std::thread::hardware_concurrency();
  return request;
}

/// Throws, before any work, unless the results can be written where they were asked for.
void check_output(const OutputOptions& options) {
  const FormattedOutput output(analysis::parse_format(options.format), options.output, options.overwrite);
}

/// Notes stand in the table for people; beside other formats they go to standard error.
void commit(const OutputOptions& options, const analysis::Document& document) {
  const analysis::Format format = analysis::parse_format(options.format);
  FormattedOutput(format, options.output, options.overwrite).commit(document);
  if (format == analysis::Format::table || options.quiet) return;
  for (const std::string& line : document.notes) note(line);
}

void run_fit(const Options& options, const analysis::CostStudy& study) {
  if (!options.plot.empty())
    usage_error("shows rows of costs, not what fits", "--plot", "Ask without --fit.");
  if (!options.sweep.empty())
    usage_error("looks for budget and batch itself", "--fit", "Ask without --sweep, one workload at a time.");
  check(study, false);
  const analysis::CostLimits limits = parse_limits(options.fit, study.machine.memory);
  const std::vector<analysis::CostFit> fits = analysis::cost_fits(study, limits);
  analysis::Document document = document_of(study);
  document.records = analysis::fit_records(fits);
  document.settings.emplace_back("memory_limit_bytes", limits.memory);
  document.settings.emplace_back("ttft_limit_seconds", analysis::value_of(limits.first_token));
  document.settings.emplace_back("tpot_limit_seconds", analysis::value_of(limits.per_token));
  document.notes = notes_of(study, {});
  document.console = [&](std::ostream& out) {
    analysis::write_fit_table(out, head_of(study, {"limits   " + described(limits)}), fits, document.notes);
  };
  commit(options, document);
}

void show(const Options& options, const analysis::CostStudy& study,
          const std::vector<analysis::CostRow>& rows, analysis::Document document) {
  document.notes = notes_of(study, rows);
  document.records = analysis::cost_records(rows);
  document.console = [&](std::ostream& out) {
    analysis::write_cost_table(out, {head_of(study, {}), rows, document.notes});
  };
  commit(options, document);
  if (!options.plot.empty()) draw_costs(document.records, options.plot, options.overwrite);
}

/// Rows by what the lanes of a recorded run held.
void run_traced(const Options& options) {
  if (!options.fit.empty()) usage_error("does not go with --fit", "--trace", "A replay holds what it held.");
  for (const std::string& text : options.sweep)
    if (parse_axis(text).name != "budget")
      usage_error("the prompt and what is generated are the trace's", "--sweep " + text);
  if (options.sequence == "all") usage_error("one sequence is priced at a time", "--sequence all");
  const ChosenSequence chosen =
      chosen_sequences(options.trace, options.sequence, {trace::parse_cut(options.cut)}).front();
  const trace::Sequence& sequence = chosen.sequence;
  refuse_to_overwrite_input(options.output, options.trace);
  analysis::CostStudy study = study_of(options, traced_model(sequence, options.trace, options.model));
  study.prompts = {sequence.prompt_length()};
  study.generates = {sequence.decode_length()};
  check(study, true);

  sim::Request request = request_of(study);
  const sim::TableFiles tables(sequence);
  request.tables = &tables;
  Progress progress;
  const sim::Outcome outcome = [&] {
    const ProgressDisplay display(progress, chosen.name, options.quiet);
    return sim::replay(sequence, request, progress);
  }();
  chosen.source->require_unchanged();
  analysis::Document document = document_of(study);
  document.traces.push_back({chosen.name, chosen.source->content_sha256(), sequence.prompt_length(),
                             sequence.decode_length(), sequence.cut().text()});
  document.settings.emplace_back("seed", request.seed);
  const std::vector<analysis::CostRow> rows =
      analysis::replayed_cost_rows(study, chosen.name, request, outcome);
  analysis::refuse_only_skipped(rows);
  show(options, study, rows, std::move(document));
}

/// Rows by the policies' rules.
void run_ruled(const Options& options) {
  if (options.model.empty())
    usage_error("is missing", "--model", "A name of `kvsim cost models`, or a config.json.");
  analysis::CostStudy study = study_of(options, cost::find_model(options.model));
  study.prompts = numbers(options, "prompt", options.prompt, parse_tokens);
  study.generates = numbers(options, "generate", options.generate, parse_tokens);
  if (!options.fit.empty()) return run_fit(options, study);
  check(study, true);
  show(options, study, analysis::cost_rows(study), document_of(study));
}

void add_output_options(CLI::App& command, OutputOptions& options) {
  command.add_option("--format", options.format, kFormats)->capture_default_str();
  command.add_option("-o,--output", options.output, "Results go to this file instead of standard output")
      ->type_name("FILE");
  command.add_flag("--overwrite", options.overwrite, "Replace an existing output file");
  command.add_flag("--quiet", options.quiet, "No notes on standard error");
}

void add_layout_options(CLI::App& command, ServingOptions& serving) {
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    command.add_option(name, value, help)
        ->capture_default_str()
        ->type_name(type)
        ->group("Layout and runtime");
  };
  add("--stored-kv-heads", serving.stored_kv_heads,
      "KV heads the cache stores (default: the model's), or `expanded`: one per query head", "N");
  add("--kv", serving.kv, "Bits of keys and values: fp16, fp32, fp8, int8, nvfp4, flexgen4, kivi2, kivi4",
      "NAME");
  add("--page", serving.page, "Tokens per page (default: contiguous lanes)", "N");
  command.add_flag("--head-pages", serving.head_pages, "Every lane has its own page table")
      ->group("Layout and runtime");
  command.add_flag("--padded", serving.padded, "Lanes of a layer are stored as long as its longest")
      ->group("Layout and runtime");
  command
      .add_flag("--holes", serving.holes,
                "Slots of evicted tokens stay empty: a page is free only when no token in it is\n"
                "left (expected pages; default: slots are used again)")
      ->group("Layout and runtime");
  command
      .add_flag("--preallocated", serving.preallocated,
                "Room for the whole sequence from the start (static caches)")
      ->group("Layout and runtime");
  command
      .add_option("--offload", serving.offload,
                  "Shares that live in host memory and stream to the device, layer by layer, whenever\n"
                  "they are needed: weights=50% cache=80%")
      ->type_name("SHARE")
      ->group("Layout and runtime");
  add("--chunk", serving.chunk, "Tokens of a prefill chunk (default: the whole prompt)", "N");
  add("--tp", serving.tensor_parallel, "Devices that share every layer", "N");
  add("--attention", serving.attention, "flash, or eager: score matrices are written and read", "KIND");
  add("--rows", serving.rows,
      "How policies that read attention of the whole prompt get it: written by the\n"
      "kernel, or recomputed",
      "HOW");
  add("--cache-traffic", serving.cache_traffic,
      "Times a step moves the cache: 1 in place, 3 where each step copies it", "X");
  add("--host-floor", serving.host_floor_ms, "Least time of a pass, ms (eager Python: 25 to 60)", "MS");
  add("--weight-bits", serving.weight_bits, "Per parameter of matrices, scales included", "BITS");
  add("--row-share", serving.row_share,
      "Share of requests that pay for an allocation's own pass over the prompt", "SHARE");
}

/// A subcommand that shows a table.
void add_list(CLI::App& cost, const char* name, const char* help,
              analysis::Records (*records)(const std::vector<std::string>&),
              void (*write)(std::ostream&, const std::vector<std::string>&)) {
  CLI::App* list = cost.add_subcommand(name, help);
  const auto options = std::make_shared<OutputOptions>();
  const auto names = std::make_shared<std::vector<std::string>>();
  list->add_option("NAME", *names, "These only, names or files (default: all that are known)");
  add_output_options(*list, *options);
  list->callback([=] {
    commit(*options, {.analysis = std::string("cost ") + name,
                      .traces = {},
                      .records = records(*names),
                      .console = [&](std::ostream& out) { write(out, *names); }});
  });
}

void add_allocators(CLI::App& cost) {
  CLI::App* command = cost.add_subcommand(
      "allocators", "What ways to give out cache memory leave unused, for requests of given lengths");
  command->footer(
      "Examples:\n  kvsim cost allocators requests.csv --model opt-13b --machine a100-40-sxm --page 16\n");
  const auto question = std::make_shared<AllocatorQuestion>();
  const auto options = std::make_shared<OutputOptions>();
  command
      ->add_option("FILE", question->requests,
                   "csv with columns prompt and generated, in tokens, in order of arrival")
      ->required();
  command->add_option("--model", question->model, "As of kvsim cost")->required();
  command->add_option("--machine", question->machine, "As of kvsim cost")->required();
  command->add_option("--page", question->page, "Tokens per page")->capture_default_str()->type_name("N");
  command
      ->add_option("--max-tokens", question->max_tokens,
                   "What a static cache reserves per request (default: the model's context)")
      ->type_name("TOKENS");
  add_output_options(*command, *options);
  command->callback([=] {
    refuse_to_overwrite_input(options->output, question->requests);
    check_output(*options);
    const analysis::Records records = allocator_records(*question);
    commit(*options, {.analysis = "cost allocators",
                      .traces = {},
                      .records = records,
                      .console = [&](std::ostream& out) { write_allocator_table(out, *question, records); }});
  });
}

/// Standard output or a file gets the results whatever they say; what does not hold is an error after them.
void add_validate(CLI::App& cost) {
  CLI::App* validate = cost.add_subcommand(
      "validate", "Numbers that papers and logs print, and ours; fails when one is not as expected");
  const auto options = std::make_shared<OutputOptions>();
  add_output_options(*validate, *options);
  validate->callback([options] {
    check_output(*options);
    const policy::Registry& policies = policy::builtin();
    commit(*options, {.analysis = "cost validate",
                      .traces = {},
                      .records = analysis::validation_records(policies),
                      .console = [&](std::ostream& out) { analysis::write_validation_table(out, policies); },
                      .page = [&](std::ostream& out) { analysis::write_validation_page(out, policies); }});
    if (!analysis::validated(policies))
      throw Error(ErrorKind::different, "ours are not as expected of the published numbers", "cost validate");
  });
}

/// Passes are fitted as the traces recorded them; nothing is served.
void refuse_beside_calibration(const CLI::App& command) {
  const std::vector<std::string> kept = {"--calibrate", "--machine",   "--format", "--output",
                                         "--quiet",     "--overwrite", "--threads"};
  for (const CLI::Option* option : command.get_options())
    if (const std::string name = option->get_name();
        !option->empty() && std::find(kept.begin(), kept.end(), name) == kept.end())
      usage_error("does not go with --calibrate", name,
                  "Traces say what was computed, and how: only --machine, --format and -o go with it.");
}

/// A sweep would silently take the place of what its option says. Budgets add up.
void refuse_said_twice(const CLI::App& command, const Options& options) {
  for (const std::string axis : {"prompt", "generate", "batch"})
    if (!command.get_option("--" + axis)->empty() && !swept(options, axis).empty())
      usage_error("is swept too", "--" + axis, "Say it once: the sweep may list its value.");
}

/// What is served, and on what.
void add_workload_options(CLI::App& command, Options& options) {
  command.add_option("--model", options.model, "Name (kvsim cost models), a config.json or its folder")
      ->type_name("NAME");
  command.add_option("--machine", options.machine, "Name (kvsim cost machines) or a file")->type_name("NAME");
  command.add_option("--prompt", options.prompt, "Tokens of every prompt: 8192, or 8K = 8 * 1024")
      ->type_name("TOKENS");
  command.add_option("--generate", options.generate, "Tokens generated by every sequence")
      ->capture_default_str()
      ->type_name("TOKENS");
  command.add_option("--batch", options.batch, "Sequences served at once")
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--policy", options.policies,
                  "As of kvsim replay, but no oracles; repeat for several (default: full)")
      ->allow_extra_args(false)
      ->type_name("POLICY");
  command
      .add_option("--budget", options.budgets,
                  "Comma list of tokens per lane (2048, 2K), shares of the prompt (25%), bytes of\none "
                  "sequence's cache (64MiB)")
      ->allow_extra_args(false)
      ->type_name("LIST");
}

/// What is asked of it.
void add_question_options(CLI::App& command, Options& options) {
  command
      .add_option("--trace", options.trace,
                  "Replay the policies on this run: what each lane held is what is priced, and prompt\n"
                  "and generated tokens are the run's; the model is its own unless --model names one of\n"
                  "the same shape")
      ->type_name("FILE");
  command
      .add_option("--sequence", options.sequence,
                  "Of a trace with several: which one, from 0 (default: the first)")
      ->needs("--trace")
      ->type_name("N");
  command.add_option("--cut", options.cut, kCutHelp)
      ->capture_default_str()
      ->needs("--trace")
      ->type_name("CUT");
  command
      .add_option("--sweep", options.sweep,
                  "Every value with every other: prompt=8K,32K batch=1..64:x2 budget=5%..50%:+5%\n"
                  "generate=64,256 (..:xF multiplies, ..:+S adds)")
      ->type_name("AXIS=LIST");
  command
      .add_option("--fit", options.fit,
                  "Largest budget and batch within limits: memory=80GiB ttft=2s tpot=50ms\n"
                  "(memory: the machine's if not said)")
      ->type_name("LIMIT");
  command
      .add_option("--plot", options.plot,
                  "Draw the figures that the rows allow into this folder, or the first of them as a\n"
                  ".svg, .png or .pdf (kvsim plot draws any of them from csv)")
      ->type_name("DIR|FILE");
  command
      .add_option("--calibrate", options.calibrate,
                  "Fit a machine's ceilings to the times in traces recorded on it; -o is a machine\n"
                  "file then, and --machine names a datasheet to start from")
      ->type_name("TRACE");
}

void run(const CLI::App& command, const Options& options) {
  if (!options.calibrate.empty()) {
    refuse_beside_calibration(command);
    return run_calibration({.traces = options.calibrate,
                            .machine = options.machine,
                            .output = options.output,
                            .format = options.format,
                            .overwrite = options.overwrite});
  }
  check_output(options);
  if (!command.get_option("--plot")->empty()) check_plot_place(options.plot, options.overwrite);
  refuse_said_twice(command, options);
  if (options.trace.empty()) return run_ruled(options);
  for (const char* fixed : {"--prompt", "--generate"})
    if (!command.get_option(fixed)->empty()) usage_error("is the trace's", fixed, "Ask without --trace.");
  run_traced(options);
}

}  // namespace

void add_cost_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("cost", "Bytes and seconds of policies that serve a model on a machine");
  command->footer(kExamples);
  const auto options = std::make_shared<Options>();
  add_workload_options(*command, *options);
  add_question_options(*command, *options);
  add_layout_options(*command, options->serving);
  add_output_options(*command, *options);
  command->add_option("--threads", options->threads, "Never changes a result (default: all)")
      ->check(CLI::Range(1U, 4096U))
      ->type_name("N");
  add_list(*command, "models", "Models known by name, and where their numbers come from", model_records,
           write_model_table);
  add_list(*command, "machines", "Machines known by name, and where their numbers come from", machine_records,
           write_machine_table);
  add_allocators(*command);
  add_validate(*command);
  command->callback([options, command] {
    if (command->get_subcommands().empty()) run(*command, *options);
  });
}

}  // namespace kvsim::tools
