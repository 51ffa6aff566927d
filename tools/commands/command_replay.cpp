// kvsim replay: what every policy at every budget would have lost on recorded runs.
#include <algorithm>
#include <ostream>
#include <sstream>
#include <thread>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/cost/cost_study.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/replay_document.hpp"
#include "analysis/results/rows.hpp"
#include "sim/base/number_text.hpp"
#include "sim/replay/decisions.hpp"
#include "sim/replay/idle_parts.hpp"
#include "sim/replay/replay.hpp"
#include "sim/replay/table_files.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"
#include "tools/options/cost_options.hpp"

namespace kvsim::tools {
namespace {

struct ReplayOptions : OutputOptions {
  std::vector<std::string> files, policies, budgets;
  std::string per = "all", decisions, machine, model, sequence, cut = "prompt";
  std::string importance, peak;
  unsigned threads = 0;
  std::uint64_t seed = 0, memory_limit = 0;
  bool quiet = false, bounds = false;
};

sim::Request make_request(const ReplayOptions& options, analysis::ReplayInputs& inputs) {
  const std::vector<analysis::AskedPolicy> policies =
      analysis::asked_policies(options.policies, front_end().policies(), note);
  const std::vector<sim::Budget> budgets = analysis::asked_budgets(options.budgets, policies, note);
  analysis::tell_many_cells(policies.size() * budgets.size(), note);
  for (const analysis::AskedPolicy& asked : policies) inputs.policies.push_back(asked.composition.params);
  for (const sim::Budget& budget : budgets) inputs.budgets.push_back(budget.text);
  sim::Request request;
  request.cells = analysis::cells_of(policies, budgets);
  request.seed = options.seed;
  request.threads = options.threads > 0 ? options.threads : std::thread::hardware_concurrency();
  request.decisions = !options.decisions.empty();
  request.each_step = inputs.scope == analysis::Scope::step;
  request.importance = sim::parse_importance(options.importance);
  request.peak = sim::parse_peak(options.peak);
  inputs.importance = request.importance.text;
  inputs.peak = request.peak.text;
  request.bounds = options.bounds;
  return request;
}

std::string describe(const ChosenSequence& study) {
  const trace::Model& model = study.sequence.model();
  std::ostringstream text;
  text << "trace   " << study.name << ": " << (model.name.empty() ? "unnamed model" : model.name) << ", "
       << model.n_layers << " layers, " << model.n_q_heads << " query and " << model.n_kv_heads
       << " KV heads of " << model.head_dim << ", cut " << study.sequence.cut().text() << ": prompt "
       << study.sequence.prompt_length() << ", decode " << study.sequence.decode_length();
  return text.str();
}

/// Refuses more rows per cell and step than a table can show.
void check_steps(const std::vector<ChosenSequence>& studies, const sim::Request& request) {
  std::uint64_t rows = 0;
  for (const ChosenSequence& study : studies) {
    rows += request.cells.size() * study.sequence.measured_length();
  }
  if (rows > analysis::kMostStepRows)
    usage_error("these would be " + std::to_string(rows) + " rows; at most " +
                    std::to_string(analysis::kMostStepRows) + " are made",
                "--per step", "Ask for fewer policies, budgets or traces at once.");
}

/// Tells what will be done and refuses what does not fit, before any of it is done.
void announce(const std::vector<ChosenSequence>& studies, const sim::Request& request,
              const analysis::ReplayInputs& inputs, const ReplayOptions& options, analysis::Format format) {
  if (request.each_step) check_steps(studies, request);
  std::uint64_t memory = 0;
  for (const ChosenSequence& study : studies) {
    memory = std::max(memory, sim::estimate_bytes(study.sequence, request));
    if (!options.quiet) front_end().announce(describe(study) + '\n');
  }
  if (options.memory_limit > 0 && memory > options.memory_limit)
    usage_error("this replay needs about " + bytes_text(memory) + " of memory, the limit is " +
                    bytes_text(options.memory_limit),
                "--memory-limit", "Fewer --threads or cells need less.");
  if (options.quiet) return;
  // At once, so that an interruption does not end a line of it.
  front_end().announce("cells   " + std::to_string(request.cells.size()) + " (policies " +
                       std::to_string(inputs.policies.size()) + ", budgets " +
                       std::to_string(inputs.budgets.size()) + ")\nrun     " +
                       std::to_string(request.threads) + " threads, about " + bytes_text(memory) + ", seed " +
                       std::to_string(request.seed) + '\n');
  if (format != analysis::Format::table && format != analysis::Format::md)
    front_end().announce(analysis::kOpenLoopNote + std::string(1, '\n'));
}

void tell_what_surprises(const std::vector<analysis::Row>& rows, const analysis::Records& records,
                         analysis::Format format) {
  if (format != analysis::Format::table)  // which says it itself
    for (const std::string& cells : analysis::skip_reasons(rows)) note("skipped: " + cells);
  for (const analysis::Row& row : rows) {
    if (row.scope != analysis::Scope::all || !row.own_total || row["allotted_tokens"].value_or(0) == 0 ||
        row["allotted_tokens"] == row.budget_tokens)
      continue;
    note(row.trace + ": " + row.policy + " at " + row.budget + " was asked for " +
         analysis::rounded_text(*row.budget_tokens) + " tokens per lane and gave out " +
         analysis::rounded_text(*row["allotted_tokens"]) + ": its formula has its own total");
  }
  for (const std::vector<std::string>& group : analysis::identical_policies(records)) {
    std::string names;
    for (const std::string& params : group) names += "\n  " + params;
    note("these policies gave identical results everywhere:" + names);
  }
}

/// What serving each trace's model takes on a machine.
class Pricing {
 public:
  /// Without a machine nothing is priced. Throws Error(usage) for what cannot be.
  Pricing(const ReplayOptions& options, analysis::Scope scope, const std::vector<ChosenSequence>& studies) {
    if (options.machine.empty()) {
      if (!options.model.empty())
        usage_error("is of --machine, which is missing", "--model", "Say --machine too: kvsim cost machines");
      return;
    }
    if (scope != analysis::Scope::all)
      usage_error("prices whole models", "--machine", "Ask for --per all, the default.");
    base_.machine = cost::find_machine(options.machine);
    base_.batches = {1};
    for (const ChosenSequence& study : studies)
      models_.push_back(traced_model(study.sequence, study.name, options.model));
  }

  void tell(analysis::ReplayInputs& inputs) const {
    if (models_.empty()) return;
    inputs.machine = base_.machine.name;
    inputs.model = models_.front().name;
  }
  /// `rows` are those of scope all, one per cell.
  void add_to(std::vector<analysis::Row>& rows, std::size_t study, const std::string& trace,
              const sim::Request& request, const sim::Outcome& outcome) const {
    if (models_.empty()) return;
    analysis::CostStudy costs = base_;
    costs.model = models_[study];
    const std::vector<analysis::CostRow> priced =
        analysis::replayed_cost_rows(costs, trace, request, outcome);
    for (std::size_t cell = 0; cell < rows.size(); ++cell)
      analysis::price(rows[cell], base_.machine.name, priced[cell].estimate);
  }

 private:
  analysis::CostStudy base_{};
  std::vector<cost::Model> models_{};
};

std::vector<analysis::Row> replay_all(const std::vector<ChosenSequence>& studies, const sim::Request& request,
                                      const ReplayOptions& options, analysis::Scope scope,
                                      const Pricing& pricing) {
  std::vector<analysis::Row> rows;
  for (std::size_t i = 0; i < studies.size(); ++i) {
    const ChosenSequence& study = studies[i];
    sim::IdleParts idle;
    sim::Outcome outcome = followed(study.name, options.quiet, [&](Progress& progress) {
      const sim::TableFiles tables(study.sequence);
      sim::Request with_files = request;
      with_files.tables = &tables;
      return sim::replay(study.sequence, with_files, progress, idle);
    });
    for (std::size_t cell = 0; cell < idle.size() && !options.quiet; ++cell)
      for (const std::string& told : idle[cell])
        note(study.name + ": " + request.cells[cell].composition.name + " at " +
             request.cells[cell].budget.text + ": " + told);
    study.source->require_unchanged();
    std::vector<analysis::Row> made = analysis::make_rows(study.name, request, outcome, scope);
    pricing.add_to(made, i, study.name, request, outcome);
    rows.insert(rows.end(), made.begin(), made.end());
    const bool some_ran =
        std::ranges::any_of(outcome.cells, [](const sim::CellOutcome& cell) { return cell.skipped.empty(); });
    if (request.decisions && some_ran)
      sim::write_decisions(options.decisions, sim::decisions_of(request, std::move(outcome)),
                           options.overwrite);
  }
  return rows;
}

void run_replay(const ReplayOptions& options) {
  const analysis::Scope scope = analysis::parse_scope(options.per);
  const analysis::Format format = chosen_format(options);
  if (options.bounds && scope != analysis::Scope::all)
    usage_error("bounds what all lanes lose together", "--bounds", "Ask for --per all, the default.");
  if (!options.decisions.empty() && options.files.size() > 1)
    usage_error("decisions are those of one trace", "--decisions", "Replay the traces one by one.");
  if (!options.decisions.empty() && options.decisions == options.output)
    usage_error("results and decisions cannot share a file", options.output);
  if (!options.decisions.empty()) refuse_output(options.decisions, options.overwrite);
  analysis::ReplayInputs inputs;
  inputs.scope = scope;
  inputs.seed = options.seed;
  const sim::Request request = make_request(options, inputs);

  const std::vector<trace::Cut> cuts = analysis::asked_cuts(options.cut, note);
  std::vector<ChosenSequence> studies;
  for (const std::string& file : options.files) {
    for (ChosenSequence& study : chosen_sequences(file, options.sequence, cuts))
      studies.push_back(std::move(study));
  }
  if (!options.decisions.empty() && studies.size() > 1)
    usage_error("decisions are those of one sequence at one cut", "--decisions",
                "Choose them: --sequence N, --cut CUT");
  for (const ChosenSequence& study : studies)
    inputs.traces.push_back({study.name, study.source->content_sha256(), study.sequence.prompt_length(),
                             study.sequence.decode_length(), study.sequence.cut().text()});
  const Pricing pricing(options, scope, studies);
  pricing.tell(inputs);
  FormattedOutput output(format, options.output, options.overwrite);
  announce(studies, request, inputs, options, format);

  const std::vector<analysis::Row> rows = replay_all(studies, request, options, scope, pricing);
  if (std::ranges::all_of(rows, [](const analysis::Row& row) { return !row.skipped.empty(); }))
    usage_error("no cell can be evaluated; the first reason:\n  " + rows.front().skipped);
  const analysis::Document document = analysis::replay_document(rows, inputs);
  output.commit(document);
  tell_what_surprises(rows, document.records, format);
}

}  // namespace

void add_replay_command(Command app) {
  Command command = app.add_subcommand("replay", "Evaluate policies at budgets on recorded runs", R"(Examples:
  kvsim replay run.h5 --policy all --budget 10%,25%,50%
  kvsim replay run.h5 --policy snapkv --policy 'h2o+pyramid(beta=10)' --budget 128 --per layer
  kvsim replay a.h5 b.h5 --policy xkv --policy full --budget 64KiB,128KiB -o rows.csv
  kvsim replay item.h5 --policy snapkv --policy keydiff --budget 25% --cut prompt,question
)");
  const auto options = std::make_shared<ReplayOptions>();
  command.add_required("TRACE", options->files, "", "Traces; rows come in this order");
  command.add_required("--policy", options->policies, "POLICY",
                       "eviction(param=value,...)+allocation(...), a preset, a pattern (h2o*), `all`\n"
                       "or `oracles` (kvsim policy list); a comma list, or repeated for several");
  command.add_option("--budget", options->budgets, "LIST",
                     "Comma list of tokens per lane (128), shares of the prompt (25%),\nbytes of the whole "
                     "cache (64MiB); full needs none");
  command.add_option("--cut", options->cut, "CUT", std::string(kCutHelp) + "; a comma list for several");
  command.add_option(
      "--importance", options->importance, "NAME=VALUE,..",
      "How importance behind r, r oracle and isr is measured\n(default: " + sim::ImportanceRule{}.text + ")");
  command.add_option("--peak", options->peak, "NAME=VALUE,..",
                     "Which rows count for peak loss (default: " + sim::PeakRule{}.text + ")");
  command.add_option("--machine", options->machine, "MACHINE",
                     "Add what serving it takes on this machine, bytes and seconds as modelled: a name\n"
                     "(kvsim cost machines) or a file");
  command.add_option("--model", options->model, "MODEL",
                     "With --machine: the model, if traces do not hold its config");
  command.add_option("--sequence", options->sequence, "N|all", kSequenceHelp);
  command.add_option("--per", options->per, "all|layer|head|step", "A row per cell, layer, head or step");
  add_output_options(command, *options);
  command.add_option("--decisions", options->decisions, "FILE",
                     "Store which positions each lane held, and when, as HDF5 (one trace only)");
  command.add_flag("--bounds", options->bounds,
                   "Add the least attention loss over all schedules and all splits of each total\n"
                   "(attention_loss_bound, scope all): an oracle's work for every lane");
  add_threads(command, options->threads, 4096);
  command.add_option("--seed", options->seed, "N", "Of random policies");
  add_memory_limit(command, options->memory_limit, "Refuse to start when more is needed: 512MiB, 2GiB, 2GB");
  command.add_flag("--quiet", options->quiet, "No description and progress on standard error");
  command.callback([options] { run_replay(*options); });
}

}  // namespace kvsim::tools
