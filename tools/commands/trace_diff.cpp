#include "tools/commands/trace_diff.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tools/printing/front_end.hpp"

namespace kvsim::tools {
namespace {

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

}  // namespace

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

}  // namespace kvsim::tools
