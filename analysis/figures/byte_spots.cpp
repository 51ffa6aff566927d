#include "analysis/figures/byte_spots.hpp"

#include <algorithm>
#include <set>

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

/// Whether something reads a part of what it stores.
bool selects(const ResultsView& view, const std::vector<std::size_t>& rows) {
  const TableColumn index = view.metric("index_bytes");
  return std::any_of(rows.begin(), rows.end(),
                     [&](std::size_t row) { return index.number(row).has_value(); });
}

/// `held`: the column of what is stored beside the index.
std::vector<ByteSpot> spots_of(const ResultsView& view, const std::vector<std::size_t>& all, Bytes counted,
                               const char* held, const Metric& metric) {
  std::vector<ByteSpot> spots;
  std::set<std::size_t> own;  // policies that are there, whatever the budget
  for (const std::string& budget : view.budgets()) {
    const std::vector<std::size_t> rows = view.rows_with(view.rows_at(budget, all), view.metric(metric.key));
    const auto bytes = view.means(rows, view.metric(counted == Bytes::read ? "read_bytes" : held)),
               index = view.means(rows, view.metric("index_bytes")),
               values = view.means(rows, view.metric(metric.key));
    for (std::size_t policy = 0; policy < bytes.size(); ++policy) {
      const ResultsView::Policy& each = view.policies()[policy];
      if (!bytes[policy] || !values[policy] || each.role == "oracle") continue;
      if (each.role == "own_budget" && !own.insert(policy).second) continue;
      const double beside = counted == Bytes::held ? index[policy].value_or(0) : 0;
      spots.push_back({each.label, family_of(each.label), budget, *bytes[policy] + beside, *values[policy]});
    }
  }
  return spots;
}

/// "KiB held at the end, index included (mean over items)".
std::string axis_of(Bytes counted, const char* held, bool index, const char* mean) {
  return std::string("KiB ") + (counted == Bytes::read ? "read per step" : held) +
         (index ? ", index included" : "") + " (mean over " + mean + ")";
}

}  // namespace

std::vector<ByteSpot> front_of(std::vector<ByteSpot> spots, const Metric& metric) {
  std::stable_sort(spots.begin(), spots.end(), [&](const ByteSpot& a, const ByteSpot& b) {
    return a.bytes < b.bytes || (a.bytes == b.bytes && metric.prefers(a.value, b.value));
  });
  std::vector<ByteSpot> front;
  for (const ByteSpot& spot : spots)
    if (front.empty() || metric.prefers(spot.value, front.back().value)) front.push_back(spot);
  return front;
}

std::vector<ByteStudy> replayed_bytes(const FigureTables& tables, const FigureChoice& choice, Bytes counted) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> rows = view.rows("all", choice);
  const bool index = selects(view, rows);
  if (rows.empty() || (counted == Bytes::read && !index)) return {};
  const Metric& leads = one_metric(tables, choice);
  const Metric& metric =
      choice.metric.empty() ? more_defined(view, rows, leads, analysis::metric("total_variation")) : leads;
  if (metric.better == Better::neither) return {};
  ByteStudy study{.metric = &metric, .axis = axis_of(counted, "held after the prompt", index, "traces")};
  study.spots = spots_of(view, rows, counted, "kept_bytes", metric);
  if (study.spots.empty()) return {};
  study.named = NamedPolicies(view, leading_metric(tables), choice).labels();
  return {std::move(study)};
}

std::vector<ByteStudy> answered_bytes(const FigureTables& tables, const FigureChoice& choice, Bytes counted) {
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
    const std::vector<std::size_t> rows = view.rows("all", all);
    const bool index = selects(view, rows);
    if (counted == Bytes::read && !index) continue;
    ByteStudy study{
        .cut = answers.cut(), .metric = &metric, .axis = axis_of(counted, "held at the end", index, "items")};
    study.spots = spots_of(view, rows, counted, "held_bytes", metric);
    if (study.spots.empty()) continue;
    study.named = NamedPolicies(view, metric, choice).labels();
    out.push_back(std::move(study));
  }
  return out;
}

}  // namespace kvsim::analysis
