#include "analysis/report/winners.hpp"

#include <ostream>
#include <tuple>

#include "analysis/report/wording.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/text_table.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

/// By what winners are named at a cut, the most telling first.
std::vector<const Metric*> deciding_metrics(const Evidence& evidence) {
  std::vector<const Metric*> out;
  for (const char* key : {"right", "kept", "kl"})
    if (out.empty() && evidence.decides(key)) out.push_back(&answer_metric(key));
  if (const Metric* leading = evidence.leading_metric()) out.push_back(leading);
  if (const Metric* loss = &metric("attention_loss");
      evidence.decides(loss->key) && (out.empty() || out.back() != loss))
    out.push_back(loss);
  return out;
}

void add_price(std::vector<Value>& row, const std::optional<Price>& price) {
  row.push_back(price ? Value(std::string(price->fits ? "yes" : "no")) : Value());
  for (double Price::*number :
       {&Price::peak_bytes, &Price::cache_bytes, &Price::ttft_seconds, &Price::tpot_seconds})
    row.push_back(price ? Value((*price).*number) : Value());
}

std::vector<Value> row_of(const std::string& cut, const Metric& metric, const Win& win,
                          const PriceList& prices) {
  const PolicyMean& best = win.best.front();
  const std::string rows = prices.prompt_rows(best.params);
  std::vector<Value> row{cut,
                         std::string(metric.key),
                         win.budget,
                         best.policy,
                         best.params,
                         best.traces,
                         best.mean,
                         value_of(best.low),
                         value_of(best.high),
                         std::uint64_t{win.best.size() - 1},
                         std::uint64_t{win.rivals.size()},
                         win.next ? Value(win.next->policy) : Value(),
                         win.next ? Value(win.next->params) : Value(),
                         win.ahead ? Value(win.ahead->difference) : Value(),
                         win.ahead ? value_of(win.ahead->low) : Value(),
                         win.ahead ? value_of(win.ahead->high) : Value(),
                         std::string(win.clear() ? "yes" : "no"),
                         rows.empty() ? Value() : Value(rows)};
  const auto price = prices.at(best.params, win.budget);
  row.push_back(prices.priced() ? Value(prices.model()) : Value());
  row.push_back(prices.priced() ? Value(prices.machine()) : Value());
  row.push_back(prices.priced() ? Value(prices.prompt()) : Value());
  add_price(row, price);
  const auto other = win.next ? prices.at(win.next->params, win.budget) : std::nullopt;
  const auto full = prices.full_cache();
  for (const auto& each : {other, full}) {
    row.push_back(each ? Value(each->peak_bytes) : Value());
    row.push_back(each ? Value(each->ttft_seconds) : Value());
    row.push_back(each ? Value(each->tpot_seconds) : Value());
  }
  return row;
}

using Cell = SortableTable::Cell;

const Metric& metric_named(const std::string& key) {
  for (const Metric& metric : answer_metrics())
    if (key == metric.key) return metric;
  return metric(key);
}

Cell bytes_cell(const std::optional<double>& bytes, const std::string& small = {}) {
  if (!bytes) return {.shown = "\u2013"};
  return {
      .shown = bytes_text(static_cast<std::uint64_t>(*bytes)), .order = exact_text(*bytes), .small = small};
}

Cell seconds_cell(const std::optional<double>& seconds, double per_second, int decimals) {
  if (!seconds) return {.shown = "\u2013"};
  return {.shown = rounded_text(per_second * *seconds, decimals), .order = exact_text(*seconds)};
}

/// How far the next policy is behind: positive whichever way the metric is better.
Cell lead_cell(const Metric& by, const std::optional<double>& difference, std::optional<double> low,
               std::optional<double> high) {
  if (!difference) return {.shown = "\u2013"};
  const bool falls = by.better == Better::higher;
  if (falls && low && high) std::tie(low, high) = std::pair(-*high, -*low);
  return {.shown = difference_text(by, *difference),
          .order = exact_text(falls ? -*difference : *difference),
          .small = low && high ? difference_interval_text(by, *low, *high) : ""};
}

}  // namespace

const std::vector<ColumnInfo>& winners_columns() {
  static const std::vector<ColumnInfo> columns{
      {"cut", "", "where the prompt ends for policies"},
      {"metric", "", "by which it is best: right answers, or a column of the results"},
      {"budget", "", "budget, as given"},
      {"policy", "", "the best over all traces of those that keep the budget"},
      {"params", "", "composition with every effective parameter"},
      {"traces", "traces", "that are averaged"},
      {"mean", "of the metric", "over traces"},
      {"low", "of the metric", "low end of the bootstrap interval; null: too few traces"},
      {"high", "of the metric", "its high end"},
      {"equals", "policies", "others with the same mean"},
      {"rivals", "policies", "behind it, but not distinguishable from it"},
      {"other", "", "the next policy; null: there is none"},
      {"other_params", "", "its composition"},
      {"difference", "of the metric", "mean over traces of the next policy's value - the best one's"},
      {"difference_low", "of the metric", "low end of its interval"},
      {"difference_high", "of the metric", "its high end"},
      {"clear", "", "yes or no: whether that interval leaves out zero"},
      {"prompt_rows", "",
       "attention rows of the prompt that the best one reads and flash attention does not keep: all, the "
       "last "
       "so many, or none"},
      {"model", "", "model that the next columns are about; null: the study names no machine"},
      {"machine", "", "machine that serves it, one sequence at a time"},
      {"prompt", "tokens", "of the sequence: the longest that was priced"},
      {"fits", "", "yes or no: peak_bytes within the machine's memory"},
      {"peak_bytes", "bytes", "most memory of the best one at any time"},
      {"cache_bytes", "bytes", "its cache after the last token"},
      {"ttft_seconds", "s", "its time to the first token"},
      {"tpot_seconds", "s", "its time per further token"},
      {"other_peak_bytes", "bytes", "of the next policy"},
      {"other_ttft_seconds", "s", "of the next policy"},
      {"other_tpot_seconds", "s", "of the next policy"},
      {"full_peak_bytes", "bytes", "of the full cache"},
      {"full_ttft_seconds", "s", "of the full cache"},
      {"full_tpot_seconds", "s", "of the full cache"}};
  return columns;
}

Records winners(const std::vector<Evidence>& cuts, const PriceList& prices) {
  Records out{winners_columns(), {}};
  for (const Evidence& evidence : cuts)
    for (const Metric* metric : deciding_metrics(evidence))
      for (const Win& win : wins(evidence, *metric))
        out.rows.push_back(row_of(evidence.cut(), *metric, win, prices));
  return out;
}

SortableTable winners_for_people(const Records& winners) {
  SortableTable table;
  if (winners.rows.empty()) return table;
  const RowFields first(winners, 0);
  const bool known = !first.text("prompt_rows").empty(), priced = !first.text("machine").empty();
  table.caption = "The best policy at each budget" +
                  (priced ? ", and its price: `" + first.text("model") + "` on `" + first.text("machine") +
                                "`, one sequence with a prompt of " + first.text("prompt") + " tokens"
                          : std::string());
  table.columns = {{"budget"},
                   {"cut", "where the prompt ends for policies"},
                   {"by"},
                   {"best"},
                   {"mean", "over traces, with its interval", true},
                   {"next"},
                   {"lead", "of the best over the next, with the interval of the paired difference", true},
                   {"clear", "whether that interval leaves out zero"}};
  if (known)
    table.columns.push_back(
        {"prompt rows",
         "attention rows of the prompt that the rule reads and flash attention does not keep"});
  if (priced)
    for (const char* title : {"peak", "cache", "TTFT (s)", "TPOT (ms)", "peak of the next", "peak of full"})
      table.columns.push_back({title, "", true});
  for (const std::vector<Value>& fields : winners.rows) {
    const RowFields row(winners, fields);
    const Metric& by = metric_named(row.text("metric"));
    std::vector<Cell>& cells = table.rows.emplace_back();
    const std::string equals = row.text("equals"), rivals = row.text("rivals");
    cells.push_back({.shown = budget_text(row.text("budget"))});
    cells.push_back({.shown = row.text("cut")});
    cells.push_back({.shown = by.label});
    cells.push_back({.shown = row.text("policy"),
                     .small = equals != "0"   ? equals + " more with the same mean"
                              : rivals != "0" ? rivals + " not distinguishable"
                                              : ""});
    cells.push_back({.shown = value_text(by, *row.number("mean")),
                     .order = row.text("mean"),
                     .small = row.number("low") && row.number("high")
                                  ? interval_text(by, row.number("low"), row.number("high"))
                                  : ""});
    cells.push_back({.shown = row.text("other").empty() ? "\u2013" : row.text("other")});
    cells.push_back(
        lead_cell(by, row.number("difference"), row.number("difference_low"), row.number("difference_high")));
    cells.push_back({.shown = row.text("clear")});
    if (known) cells.push_back({.shown = row.text("prompt_rows")});
    if (!priced) continue;
    cells.push_back(bytes_cell(row.number("peak_bytes"), row.text("fits") == "no" ? "does not fit" : ""));
    cells.push_back(bytes_cell(row.number("cache_bytes")));
    cells.push_back(seconds_cell(row.number("ttft_seconds"), 1, 3));
    cells.push_back(seconds_cell(row.number("tpot_seconds"), 1e3, 1));
    cells.push_back(bytes_cell(row.number("other_peak_bytes")));
    cells.push_back(bytes_cell(row.number("full_peak_bytes")));
  }
  return table;
}

void write_winners(std::ostream& out, const Records& winners) {
  SortableTable table = winners_for_people(winners);
  if (table.rows.empty()) {
    out << "No policy could be compared.\n";
    return;
  }
  std::erase(table.caption, '`');
  out << table.caption << "\n\n";
  TextTable text;
  for (const SortableTable::Column& column : table.columns)
    text.add_column(column.title, column.numeric ? Align::right : Align::left);
  for (const std::vector<Cell>& cells : table.rows) {
    std::vector<std::string> fields;
    for (const Cell& cell : cells)
      fields.push_back(cell.shown + (cell.small.empty() ? "" : " (" + cell.small + ")"));
    text.add_row(fields);
  }
  text.print(out);
}

}  // namespace kvsim::analysis
