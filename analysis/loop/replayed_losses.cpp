#include "analysis/loop/replayed_losses.hpp"

#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/rows.hpp"

namespace kvsim::analysis {
namespace {

constexpr const char* kLosses[] = {"evidence_loss", "peak_loss", "attention_loss", "output_error", "r"};

}  // namespace

const std::vector<ColumnInfo>& loss_columns() {
  static const std::vector<ColumnInfo> all = [] {
    std::vector<ColumnInfo> out;
    for (const char* key : kLosses)
      for (const Metric& metric : all_metrics())
        if (std::string_view(metric.key) == key) out.push_back(info_of(metric));
    return out;
  }();
  return all;
}

std::vector<std::vector<Value>> replayed_losses(const trace::Sequence& sequence,
                                                const sim::Request& request) {
  Progress unseen;
  const sim::Outcome outcome = sim::replay(sequence, request, unseen);
  std::vector<std::vector<Value>> out;
  for (const Row& row : make_rows("", request, outcome, Scope::all)) {
    std::vector<Value>& losses = out.emplace_back();
    for (const char* key : kLosses) losses.push_back(value_of(row[key]));
  }
  return out;
}

}  // namespace kvsim::analysis
