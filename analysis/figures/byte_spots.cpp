#include "analysis/figures/byte_spots.hpp"

#include <algorithm>

#include "analysis/figures/answer_view.hpp"

namespace kvsim::analysis {
namespace {

/// "snapkv+kivi" of "snapkv(window=16)+kivi(bits=2)".
std::string family_of(const std::string& label) {
  std::string out;
  int depth = 0;
  for (const char c : label) {
    if (c == '(') ++depth;
    if (depth == 0) out += c;
    if (c == ')') --depth;
  }
  return out;
}

const Metric& metric_of(const FigureTables& tables, const ResultsView& view,
                        const std::vector<std::size_t>& rows, const FigureChoice& choice) {
  const Metric& leads = one_metric(tables, choice);
  const Metric& stored = metric("total_variation");
  if (!choice.metric.empty()) return leads;
  const auto has = [&](const Metric& each) {
    const TableColumn column = view.metric(each.key);
    return std::count_if(rows.begin(), rows.end(),
                         [&](std::size_t row) { return column.number(row).has_value(); });
  };
  return has(stored) > has(leads) ? stored : leads;
}

}  // namespace

std::vector<ByteSpot> byte_spots(const ResultsView& view, const std::vector<std::size_t>& all,
                                 const char* column, const Metric& metric) {
  std::vector<ByteSpot> spots;
  for (const std::string& budget : view.budgets()) {
    const std::vector<std::size_t> rows = view.rows_with(view.rows_at(budget, all), view.metric(metric.key));
    const auto bytes = view.means(rows, view.metric(column)),
               values = view.means(rows, view.metric(metric.key));
    for (std::size_t policy = 0; policy < bytes.size(); ++policy) {
      const ResultsView::Policy& each = view.policies()[policy];
      if (bytes[policy] && values[policy] && each.role != "oracle")
        spots.push_back({each.label, family_of(each.label), budget, *bytes[policy], *values[policy]});
    }
  }
  return spots;
}

std::vector<ByteSpot> front_of(std::vector<ByteSpot> spots, const Metric& metric) {
  std::stable_sort(spots.begin(), spots.end(), [&](const ByteSpot& a, const ByteSpot& b) {
    return a.bytes < b.bytes || (a.bytes == b.bytes && metric.prefers(a.value, b.value));
  });
  std::vector<ByteSpot> front;
  for (const ByteSpot& spot : spots)
    if (front.empty() || metric.prefers(spot.value, front.back().value)) front.push_back(spot);
  return front;
}

std::vector<ByteStudy> replayed_bytes(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> rows = view.rows("all", choice);
  if (rows.empty()) return {};
  const Metric& metric = metric_of(tables, view, rows, choice);
  if (metric.better == Better::neither) return {};
  ByteStudy study{.metric = &metric, .axis = "KiB held after the prompt (mean over traces)"};
  study.spots = byte_spots(view, rows, "kept_bytes", metric);
  if (study.spots.empty()) return {};
  study.named = NamedPolicies(view, leading_metric(tables), choice).labels();
  return {std::move(study)};
}

std::vector<ByteStudy> answered_bytes(const FigureTables& tables, const FigureChoice& choice) {
  std::vector<ByteStudy> out;
  for (const AnswerView& answers : answer_views(tables, choice)) {
    if (!choice.metric.empty()) {
      std::vector<std::string> keys;
      for (const Metric& each : answer_metrics()) keys.push_back(each.key);
      known_name(choice.metric, keys, "--metric");
    }
    const Metric& metric = choice.metric.empty() ? answers.leading() : answer_metric(choice.metric);
    const ResultsView& view = answers.view();
    FigureChoice all = choice;
    all.trace.clear();  // means are over items
    ByteStudy study{.cut = answers.cut(), .metric = &metric, .axis = "KiB held at the end (mean over items)"};
    study.spots = byte_spots(view, view.rows("all", all), "held_bytes", metric);
    if (study.spots.empty()) continue;
    study.named = NamedPolicies(view, metric, choice).labels();
    out.push_back(std::move(study));
  }
  return out;
}

}  // namespace kvsim::analysis
