// kvsim diff: what two results say differently.
#include <algorithm>
#include <memory>
#include <string>

#include "analysis/diff.hpp"
#include "analysis/document.hpp"
#include "analysis/read_tables.hpp"
#include "sim/base/error.hpp"
#include "tools/command.hpp"
#include "tools/formatted_output.hpp"
#include "tools/result_output.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  kvsim diff before.csv after.csv
  kvsim diff rows.json rows.csv --tolerance 1e-9
  kvsim diff study-a study-b --format jsonl

Exit code 5: the results differ. Values differ when |a - b| > T * max(1, |a|, |b|).
)";

struct Options {
  std::string a, b, format = "table", output;
  double tolerance = 0;
  bool overwrite = false;
};

std::string counted(std::uint64_t n, const std::string& what) {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

/// People need not be told what no finding has.
void drop_empty_columns(analysis::Records& records) {
  for (std::size_t i = records.columns.size(); i-- > 0;) {
    const bool empty = std::all_of(records.rows.begin(), records.rows.end(), [&](const auto& row) {
      return std::holds_alternative<std::monostate>(row[i]);
    });
    if (!empty) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    records.columns.erase(records.columns.begin() + at);
    for (auto& row : records.rows) row.erase(row.begin() + at);
  }
}

void run_diff(const Options& options) {
  const analysis::Format format = analysis::parse_format(options.format);
  for (const std::string& file : {options.a, options.b}) refuse_to_overwrite_input(options.output, file);
  FormattedOutput output(format, options.output, options.overwrite);
  const analysis::Comparison found = analysis::compare(analysis::read_tables(options.a),
                                                       analysis::read_tables(options.b), options.tolerance);

  analysis::Document document{.analysis = "diff", .traces = {}, .records = found.findings};
  document.settings = {{"a", options.a}, {"b", options.b}, {"tolerance", options.tolerance}};
  document.notes = {"Compared: " + counted(found.values, "value") + " in " + counted(found.rows, "row") +
                    " of " + counted(found.tables, "table") + "."};
  const bool equal = found.findings.rows.empty();
  if (equal) document.notes.push_back("No differences.");
  if (format == analysis::Format::table) drop_empty_columns(document.records);
  output.commit(document);
  if (!equal) throw Error(ErrorKind::different, "the results differ", options.a + " and " + options.b);
}

}  // namespace

void add_diff_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("diff", "What two results say differently");
  command->footer(kExamples);
  const auto options = std::make_shared<Options>();
  command->add_option("A", options->a, "Results as csv, json or jsonl, or the folder of a study")->required();
  command->add_option("B", options->b, "What they are compared with")->required();
  command
      ->add_option("--tolerance", options->tolerance,
                   "Absolute up to 1, relative above: what counts as the same")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->type_name("T");
  command->add_option("--format", options->format, kFormats)->capture_default_str();
  command->add_option("-o,--output", options->output, "Findings go to this file instead of standard output")
      ->type_name("FILE");
  command->add_flag("--overwrite", options->overwrite, "Replace an existing output file");
  command->callback([options] { run_diff(*options); });
}

}  // namespace kvsim::tools
