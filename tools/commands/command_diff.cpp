// kvsim diff: what two results, or two traces, say differently.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "analysis/results/diff.hpp"
#include "analysis/results/document.hpp"
#include "analysis/results/reading/read_hdf5.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "sim/base/error.hpp"
#include "sim/base/read_file.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/trace_diff.hpp"
#include "tools/options/output_options.hpp"
#include "tools/printing/formatted_output.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

struct DiffOptions : OutputOptions {
  std::string a, b, per = "all";
  std::optional<double> tolerance, row_tolerance;
  bool quiet = false;
};

std::string counted(std::uint64_t n, const std::string& what) {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

analysis::Document diff_results(const DiffOptions& options) {
  if (options.row_tolerance || options.per != "all")
    usage_error("is for traces; these are results", options.row_tolerance ? "--row-tolerance" : "--per");
  const double tolerance = options.tolerance.value_or(0);
  const analysis::Comparison found =
      analysis::compare(analysis::read_tables(options.a), analysis::read_tables(options.b), tolerance);
  analysis::Document document{.analysis = "diff", .traces = {}, .records = found.findings};
  document.settings = {{"a", options.a}, {"b", options.b}, {"tolerance", tolerance}};
  document.notes = {"Compared: " + counted(found.values, "value") + " in " + counted(found.rows, "row") +
                    " of " + counted(found.tables, "table") + "."};
  if (found.findings.rows.empty()) document.notes.push_back("No differences.");
  return document;
}

bool is_trace(const std::string& path) {
  return begins_with(path, "\x89HDF") && !analysis::holds_hdf5_results(path);
}

void run_diff(const DiffOptions& options) {
  const analysis::Format format = chosen_format(options);
  FormattedOutput output(format, options.output, options.overwrite);
  const bool traces = is_trace(options.a) && is_trace(options.b);
  TraceDiff found;
  if (traces) {
    found = diff_traces(options.a, options.b,
                        {.comparison = {options.tolerance, options.row_tolerance},
                         .each_layer = options.per == "layer",
                         .notes_headers = format == analysis::Format::table,
                         .quiet = options.quiet});
  } else {
    found.document = diff_results(options);
    found.same = found.document.records.rows.empty();
  }
  // People need not be told what no finding has.
  if (format == analysis::Format::table) analysis::drop_empty_columns(found.document.records);
  output.commit(found.document);
  if (!found.same)
    throw Error(ErrorKind::different, traces ? "the traces differ" : "the results differ",
                options.a + " and " + options.b);
}

}  // namespace

void add_diff_command(Command app) {
  Command command =
      app.add_subcommand("diff", "What two results, or two traces, say differently", R"(Examples:
  kvsim diff before.csv after.csv
  kvsim diff rows.json rows.csv --tolerance 1e-9
  kvsim diff study-a study-b --format jsonl
  kvsim diff cpu.h5 hook.h5 --per layer

Results: values differ when |a - b| > T * max(1, |a|, |b|); T is 0 unless told.

Traces: tokens, positions and segments must agree; where tokens part, what comes before them is
compared. A layer's q, k, v, attention rows, column sums and wo differ when |A - B| > T * max(|A|, |B|),
norms over all they hold (Frobenius), or when the same of one row, a token of a head, exceeds R. T is by
the coarser elements of the two, unless told: f32 1e-5; f16 0.0039 and bf16 0.031, eight units of
rounding, of which layers add up: deep models may need more. R is 16 T. What one trace alone holds is
noted, no difference; another order of rotated components (rope_layout) is noted and undone. Names,
roles, flags, text, times and provenance are not compared.

Exit code 5: there are differences.
)");
  const auto options = std::make_shared<DiffOptions>();
  command.add_required("A", options->a, "",
                       "Results (csv, json, jsonl or HDF5), the folder of a study, or a trace");
  command.add_required("B", options->b, "", "What they are compared with");
  command.add_option("--tolerance", options->tolerance, "T",
                     "Results: absolute up to 1, relative above: what counts as the same (default: 0).\n"
                     "Traces: relative error of a tensor (default: by its elements, see below)",
                     between(0.0, 1.0));
  command.add_option("--row-tolerance", options->row_tolerance, "R",
                     "Traces: relative error of one row of a head (default: 16 T)", between(0.0, 2.0));
  command.add_option("--per", options->per, "",
                     "Traces: a row per tensor, its worst layer (all), or per tensor and layer (layer)",
                     one_of({"all", "layer"}));
  add_output_options(command, *options);
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options] { run_diff(*options); });
}

}  // namespace kvsim::tools
