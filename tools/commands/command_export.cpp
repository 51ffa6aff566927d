// kvsim export: results that are there, in another format.

#include "analysis/report/winners.hpp"
#include "analysis/results/hdf5_export.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "sim/base/suggest.hpp"
#include "tools/commands/command.hpp"

namespace kvsim::tools {
namespace {

struct ExportOptions : OutputOptions {
  std::string results, table;
};

analysis::NamedTable chosen(std::vector<analysis::NamedTable> tables, const ExportOptions& options) {
  std::vector<std::string> names;
  for (analysis::NamedTable& table : tables) {
    if (table.name == options.table || tables.size() == 1) return std::move(table);
    names.push_back(table.name);
  }
  if (options.table.empty())
    usage_error("holds several tables", options.results,
                "Choose one with --table, or write all of them with --format h5. " + suggestion("", names));
  usage_error("has no table '" + options.table + "'", options.results, suggestion(options.table, names));
}

void run_export(const ExportOptions& options) {
  const analysis::Format format = chosen_format(options);
  FormattedOutput output(format, options.output, options.overwrite);
  std::vector<analysis::NamedTable> tables = analysis::read_tables(options.results);
  analysis::Document document{
      .analysis = "study", .traces = {}, .settings = {{"read_from", options.results}}, .records = {}};
  if (format == analysis::Format::h5 && options.table.empty()) {
    document.tables = std::move(tables);
  } else {
    analysis::NamedTable table = chosen(std::move(tables), options);
    document.analysis = table.name;
    document.records = std::move(table.records);
    if (table.name == analysis::kWinnersTable && !document.records.rows.empty())
      document.console = [&document](std::ostream& out) { analysis::write_winners(out, document.records); };
  }
  output.commit(document);
}

}  // namespace

void add_export_command(Command app) {
  Command command =
      app.add_subcommand("export", "Write results that are there in another format", R"(Examples:
  kvsim export study -o study.h5
  kvsim export study --table winners
  kvsim export rows.csv -o rows.jsonl
)");
  const auto options = std::make_shared<ExportOptions>();
  command.add_required("RESULTS", options->results, "",
                       "Folder of a study, or results as csv, json, jsonl or HDF5");
  command.add_option("--table", options->table, "NAME",
                     "Of a study: results, means, ranks, ... (default for h5: all)");
  add_output_options(command, *options);
  command.callback([options] { run_export(*options); });
}

}  // namespace kvsim::tools
