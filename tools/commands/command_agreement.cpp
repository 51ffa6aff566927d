// kvsim agreement: how well a replay orders policies as the answers of the running model do.

#include "analysis/agreement/loop_agreement.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "sim/base/suggest.hpp"
#include "tools/commands/command.hpp"

namespace kvsim::tools {
namespace {

struct AgreementOptions : OutputOptions {
  std::vector<std::string> files, open;
  std::string table = "agreement";
  analysis::AgreementOptions agreement;
};

std::vector<analysis::Records> tables_of(const std::vector<std::string>& files) {
  std::vector<analysis::Records> out;
  for (const std::string& file : files) {
    const std::size_t before = out.size();
    for (analysis::NamedTable& table : analysis::read_tables(file))
      if (analysis::holds_open_rows(table.records) || analysis::holds_closed_rows(table.records))
        out.push_back(std::move(table.records));
    if (out.size() == before)
      input_error("holds rows neither of a replay nor of a model that answers", file,
                  "kvsim replay --format csv and kvsim evaluate --format csv make them.");
  }
  return out;
}

analysis::Records& chosen(analysis::LoopAgreement& found, const std::string& table) {
  if (table == "agreement") return found.agreement;
  if (table == "choices") return found.choices;
  if (table == "thresholds") return found.thresholds;
  usage_error("unknown table '" + table + "'", "--table",
              suggestion(table, {"agreement", "choices", "thresholds"}));
}

void run_agreement(const AgreementOptions& options) {
  const analysis::Format format = chosen_format(options);
  std::vector<const analysis::Metric*> open;
  for (const std::string& key : options.open) open.push_back(&analysis::open_measure(key));
  if (open.empty()) open = analysis::open_measures();
  for (const std::string& key : options.agreement.closed) analysis::closed_measure(key);
  analysis::LoopAgreement empty = analysis::empty_agreement();
  chosen(empty, options.table);
  FormattedOutput output(format, options.output, options.overwrite);

  std::vector<const analysis::ClosedMeasure*> closed;
  for (const analysis::ClosedMeasure& each : analysis::closed_measures()) closed.push_back(&each);
  analysis::LoopAgreement found = analysis::loop_agreement(
      analysis::join_loops(tables_of(options.files), open, closed), options.agreement);
  analysis::Document document{
      .analysis = options.table, .traces = {}, .records = std::move(chosen(found, options.table))};
  document.settings = {{"least_full", options.agreement.least_full},
                       {"kept", options.agreement.kept},
                       {"trusted", options.agreement.trusted},
                       {"resamples", options.agreement.resamples},
                       {"seed", options.agreement.seed},
                       {"confidence", options.agreement.confidence}};
  document.notes = std::move(found.notes);
  output.commit(document);
}

}  // namespace

void add_agreement_command(Command app) {
  Command command = app.add_subcommand(
      "agreement", "Whether replays order policies as the answers of the running model do", R"(Examples:
  kvsim agreement replayed.csv answered.csv
  kvsim agreement study --closed right --open attention_loss,peak_loss
  kvsim agreement replayed.csv answered.csv --table thresholds -o thresholds.csv

Rows of kvsim replay and of kvsim evaluate are joined on item, policy with parameters, budget, cut and
seed; a trace is called as its item. Tables: agreement (orders of policies by both loops, over all
items), choices (the measure of the replay that one half of the items chooses, on the other half),
thresholds (the loss up to which answers are kept, chosen and reported alike).
)");
  const auto options = std::make_shared<AgreementOptions>();
  analysis::AgreementOptions& agreement = options->agreement;
  command.add_required(
      "FILE", options->files, "",
      "Rows of both loops in any order (csv, json, jsonl or HDF5), or the folder of a study");
  command.add_option("--table", options->table, "agreement|choices|thresholds", "Which table");
  command.add_option("--open", options->open, "LIST", "Comma list of measures of the replay (default: all)")
      .delimiter(',');
  command
      .add_option("--closed", agreement.closed, "LIST",
                  "Comma list of measures of the closed loop (default: right,kl,same_top,log_p)")
      .delimiter(',');
  command.add_option("--least-full", agreement.least_full, "SHARE",
                     "Share of a workload's items that the full cache must answer; 0 ranks every workload");
  command.add_option("--kept", agreement.kept, "SHARE",
                     "Of the full cache's accuracy, the share that counts as kept (thresholds)");
  command.add_option("--trusted", agreement.trusted, "SHARE",
                     "Of the policies within a threshold, the share that must keep it where it is chosen");
  command.add_option("--resamples", agreement.resamples, "N", "Of the bootstrap over items");
  command.add_option("--seed", agreement.seed, "N", "Of the bootstrap");
  command.add_option("--confidence", agreement.confidence, "SHARE", "Of intervals");
  add_output_options(command, *options);
  command.callback([options] { run_agreement(*options); });
}

}  // namespace kvsim::tools
