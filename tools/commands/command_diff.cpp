// kvsim diff: what two results, or two traces, say differently.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "analysis/report/wording.hpp"
#include "analysis/results/diff.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "sim/base/files.hpp"
#include "tools/commands/command.hpp"
#include "traces/comparison/trace_comparison.hpp"

namespace kvsim::tools {
namespace {

struct TraceDiff {
  analysis::Document document;
  bool same = true;
};

struct TraceDiffOptions {
  trace::ComparisonOptions comparison{};
  bool each_layer = false;     ///< a row per tensor and layer, not per tensor for its worst layer
  bool notes_headers = false;  ///< what headers say differently is told in notes, not in rows of their own
  bool quiet = false;          ///< no progress
};

using analysis::Value;
using trace::TensorComparison;

const std::vector<analysis::ColumnInfo>& columns() {
  static const std::vector<analysis::ColumnInfo> kColumns{
      {"part", "",
       "model, tokens, paths, positions, segments; or the tensor of a layer: q, k, v, attention, "
       "column_sum, column_sum_squares, wo"},
      {"finding", "", "equal: every value is; close: within the tolerance; different"},
      {"detail", "", "what is different, where no tensor is"},
      {"layers", "layers", "compared in this row"},
      {"layers_different", "layers", "of them, beyond a tolerance"},
      {"layer", "", "that the rest of the row is about: the worst of them"},
      {"values", "values", "compared"},
      {"unequal", "values", "that are not the same number"},
      {"relative_error", "ratio", "|A - B| / max(|A|, |B|), norms over the tensor (Frobenius)"},
      {"tolerance", "ratio", "largest relative_error that is close"},
      {"row_error", "ratio", "largest such error of one row: a token of a head"},
      {"row_tolerance", "ratio", "largest row_error that is close"},
      {"cosine", "ratio", "between all values of A and of B"},
      {"largest_difference", "as the tensor", "largest |a - b|"},
      {"a", "as the tensor", "A's value there"},
      {"b", "as the tensor", "B's value there"},
      {"head", "", "of that value: KV head for k and v, else query head"},
      {"token", "", "of that value, in file order; of wo the component of the head's output"},
      {"component", "",
       "of that value: of its row; of attention the key, counted from the row's first; of column sums the "
       "key"},
  };
  return kColumns;
}

const char* finding(const TensorComparison& tensor) {
  return !tensor.within() ? "different" : tensor.difference.unequal > 0 ? "close" : "equal";
}

/// How much of its tolerance a tensor takes: the worst of several layers takes most.
double strain(const TensorComparison& tensor) {
  const auto share = [](double error, double allowed) {
    return error == 0 ? 0.0 : allowed > 0 ? error / allowed : HUGE_VAL;
  };
  return std::max(share(tensor.difference.relative_error, tensor.tolerance.tensor),
                  share(tensor.difference.largest_row_error, tensor.tolerance.row));
}

std::vector<Value> row_of(const TensorComparison& worst, std::uint64_t layers, std::uint64_t different) {
  const trace::TensorDifference& found = worst.difference;
  std::vector<Value> row{worst.part,
                         std::string(finding(worst)),
                         Value(),
                         layers,
                         different,
                         std::uint64_t{worst.layer},
                         found.values,
                         found.unequal,
                         found.relative_error,
                         worst.tolerance.tensor,
                         found.largest_row_error,
                         worst.tolerance.row,
                         analysis::value_of(found.cosine),
                         found.largest};
  if (found.unequal == 0) {
    row.resize(columns().size());
    return row;
  }
  row.insert(row.end(),
             {static_cast<double>(found.a), static_cast<double>(found.b), std::uint64_t{found.head},
              worst.part.starts_with("column") ? Value() : Value(found.row), found.component});
  return row;
}

void add_tensors(const std::vector<TensorComparison>& tensors, bool each_layer, analysis::Records& out) {
  if (each_layer) {
    for (const TensorComparison& tensor : tensors)
      out.rows.push_back(row_of(tensor, 1, tensor.within() ? 0 : 1));
    return;
  }
  for (const char* part : {"q", "k", "v", "attention", "column_sum", "column_sum_squares", "wo"}) {
    std::uint64_t layers = 0, different = 0;
    const TensorComparison* worst = nullptr;
    for (const TensorComparison& tensor : tensors) {
      if (tensor.part != part) continue;
      ++layers;
      different += tensor.within() ? 0 : 1;
      if (worst == nullptr || strain(tensor) > strain(*worst)) worst = &tensor;
    }
    if (worst != nullptr) out.rows.push_back(row_of(*worst, layers, different));
  }
}

TraceDiff diff_traces(const std::string& a, const std::string& b, const TraceDiffOptions& options) {
  const trace::FileTrace of_a(a, {}), of_b(b, {});
  const trace::TraceComparison found = followed("comparing", options.quiet, [&](Progress& progress) {
    return trace::compare_traces(of_a, of_b, options.comparison, progress);
  });
  of_a.require_unchanged();
  of_b.require_unchanged();
  TraceDiff out{{.analysis = "diff", .traces = {}, .records = {columns(), {}}}, found.same()};
  analysis::Document& document = out.document;
  document.settings = {{"a", a}, {"b", b}, {"per", std::string(options.each_layer ? "layer" : "all")}};
  for (const trace::HeaderDifference& difference : found.header.differences) {
    if (options.notes_headers) {
      document.notes.push_back("Different " + difference.part + ": " + difference.detail + ".");
      continue;
    }
    std::vector<Value>& row = document.records.rows.emplace_back(columns().size());
    row[0] = difference.part;
    row[1] = std::string("different");
    row[2] = difference.detail;
  }
  add_tensors(found.tensors, options.each_layer, document.records);

  document.notes.insert(document.notes.end(), found.header.notes.begin(), found.header.notes.end());
  if (!found.header.same_shape)
    document.notes.emplace_back("These are traces of different models; nothing else was compared.");
  else
    document.notes.push_back("Compared: the tensors of " + std::to_string(found.header.tokens) + " tokens.");
  if (const std::string cause = trace::diagnosis(found); !cause.empty()) document.notes.push_back(cause);
  if (out.same) document.notes.emplace_back("No differences beyond the tolerance.");
  return out;
}

struct DiffOptions : OutputOptions {
  std::string a, b, per = "all";
  std::optional<double> tolerance, row_tolerance;
  bool quiet = false;
};

analysis::Document diff_results(const DiffOptions& options) {
  if (options.row_tolerance || options.per != "all")
    usage_error("is for traces; these are results", options.row_tolerance ? "--row-tolerance" : "--per");
  const double tolerance = options.tolerance.value_or(0);
  const analysis::Comparison found =
      analysis::compare(analysis::read_tables(options.a), analysis::read_tables(options.b), tolerance);
  analysis::Document document{.analysis = "diff", .traces = {}, .records = found.findings};
  document.settings = {{"a", options.a}, {"b", options.b}, {"tolerance", tolerance}};
  document.notes = {"Compared: " + analysis::count_text(found.values, "value") + " in " +
                    analysis::count_text(found.rows, "row") + " of " +
                    analysis::count_text(found.tables, "table") + "."};
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
