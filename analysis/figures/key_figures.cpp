// Figures of what traces show about keys and attention: means over traces of the tables of kvsim analyze.
#include <algorithm>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/trace_tables.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

std::string whole(const Value& field) {
  return std::to_string(static_cast<std::uint64_t>(number(field).value_or(0)));
}

std::string layer_name(double layer) {
  return "layer " + std::to_string(static_cast<std::uint64_t>(layer));
}

/// Place of `name` in `names`, where it stands from now on.
std::size_t place_of(const std::string& name, std::vector<std::string>& names) {
  add_once(names, name);
  return static_cast<std::size_t>(place_in(names, name));
}

/// ALR: how far each ranking is from the best order, a column per lane.
std::vector<Figure> ranking_loss(const Records& table) {
  Figure figure{.title = "How far rankings of positions are from the best order (ALR / largest ALR)",
                .reading =
                    "0 % is a ranking that drops what gets least attention first, 100 % the opposite; a draw "
                    "by lot has 50 %.",
                .remark = means_remark(table, {"alr_share"}),
                .data = trace_means(table, {"ranking", "layer", "head"}, {"alr_share"})};
  HeatMap map{.unit = "ALR / largest ALR", .numbers = true, .percent = true};
  map.x.label = "layer.KV head";
  map.y.label = "ranking";
  for (const std::vector<Value>& row : figure.data.rows) {
    const std::size_t y = place_of(text(row[0]), map.y.categories),
                      x = place_of(whole(row[1]) + '.' + whole(row[2]), map.x.categories);
    map.rows.resize(map.y.categories.size());
    for (auto& cells : map.rows) cells.resize(map.x.categories.size());
    map.rows[y][x] = number(row[3]);
  }
  figure.panels.push_back({"", std::move(map)});
  return {figure};
}

/// The policy whose colour a ranking has.
std::string policy_that_ranks(const std::string& ranking) {
  if (ranking == "hash") return "hashevict";
  return ranking == "recency" ? "window" : ranking;
}

/// Attention lost against the share of positions dropped, from a table ranking, dropped, loss, loss_ideal.
Chart loss_chart(const Records& means, bool shares) {
  constexpr std::size_t kMostCurves = 8;  // rankings with a colour of their own
  const std::size_t loss = means.column("loss"), ideal = means.column("loss_ideal"),
                    dropped = means.column("dropped"), ranking = means.column("ranking");
  Chart chart{.x = {.label = "positions dropped", .percent = true},
              .y = {.label = "attention lost", .low = 0.0, .percent = shares}};
  Series best{.label = "best order", .weight = Weight::bound};
  for (const std::vector<Value>& row : means.rows) {
    const std::size_t known = chart.series.size();
    Series& series = series_named(chart, text(row[ranking]));
    if (chart.series.size() > known) {
      series.weight = known < kMostCurves ? Weight::plain : Weight::faint;
      series.policy = policy_that_ranks(series.label);
    }
    const auto x = number(row[dropped]), y = number(row[loss]), least = number(row[ideal]);
    if (x && y) series.points.push_back({*x, *y});
    if (x && least && &series == &chart.series.front()) best.points.push_back({*x, *least});
  }
  chart.series.push_back(std::move(best));
  sort_points(chart);
  return chart;
}

std::vector<Figure> cumulative_loss(const Records& table) {
  constexpr std::size_t kMostLayers =
      5;  // with a panel of their own: first and last, and evenly between them
  const std::vector<std::string> values{"loss", "loss_ideal"};
  Figure figure{
      .title = "Attention lost by dropping positions in the order of a ranking",
      .reading =
          "The nearer a curve is to the best order, the better the ranking knows what attention will not "
          "need; the straight line from nothing to everything is what a draw by lot has on average.",
      .remark = means_remark(table, {"loss"}),
      .data = trace_means(table, {"layer", "ranking", "dropped"}, values)};
  const std::map<double, Records> layers = split_by_number(figure.data, "layer");
  const bool shares = std::ranges::all_of(
      figure.data.rows, [](const std::vector<Value>& row) { return number(row[3]).value_or(0) <= 1.001; });
  figure.panels.push_back({layers.size() > 1 ? "all layers" : "",
                           loss_chart(trace_means(figure.data, {"ranking", "dropped"}, values), shares)});
  if (layers.size() < 2) return {figure};
  const std::size_t shown = std::min(layers.size(), kMostLayers);
  for (std::size_t i = 0; i < shown; ++i) {
    const auto at =
        std::next(layers.begin(), static_cast<std::ptrdiff_t>(i * (layers.size() - 1) / (shown - 1)));
    figure.panels.push_back({layer_name(at->first), loss_chart(at->second, shares)});
  }
  if (layers.size() > kMostLayers)
    add_sentence(figure.remark, std::to_string(kMostLayers) + " of " + std::to_string(layers.size()) +
                                    " layers have a panel; the data has them all.");
  return {figure};
}

/// `key` against bits, from rows of one value per length.
Series hash_curve(const Records& records, const std::string& key, std::string label, Weight weight) {
  Series out{.label = std::move(label), .weight = weight};
  const std::size_t bits = records.column("bits"), at = records.column(key);
  for (const std::vector<Value>& row : records.rows)
    if (const auto x = number(row[bits]), y = number(row[at]); x && y) out.points.push_back({*x, *y});
  return out;
}

/// Hash correlation by code length, against what noise shows anyway; of every query head, a map per length.
std::vector<Figure> hash_correlation(const Records& table) {
  Figure figure{.name = "hash-correlation",
                .title = "Attention and Hamming similarity, by code length",
                .reading =
                    "Longer codes correlate more even with noise, so only the distance of a curve from the "
                    "noise says something about the traces.",
                .remark = means_remark(table, {"correlation"}),
                .data = table};
  if (!split_by_number(table, "head").empty()) {
    for (const auto& [bits, rows] : split_by_number(table, "bits"))
      figure.panels.push_back(
          {whole(bits) + " bits",
           lane_map(trace_means(rows, {"layer", "head"}, {"correlation"}), "correlation", "query head", "")});
    return {figure};
  }
  Chart chart{.x = {.label = "bits of a code", .log = true}, .y = {.label = "correlation", .line = 0.0}};
  const Records means = trace_means(table, {"bits"}, {"correlation", "correlation_noise"});
  const std::map<double, Records> layers = split_by_number(table, "layer");
  const std::vector<Records> traces = split_by(table, "trace");
  for (const auto& [layer, rows] : layers)
    chart.series.push_back(hash_curve(trace_means(rows, {"bits"}, {"correlation"}), "correlation",
                                      layer_name(layer), Weight::plain));
  if (layers.empty() && traces.size() > 1)
    for (const Records& trace : traces)
      chart.series.push_back(hash_curve(trace, "correlation", "one trace", Weight::faint));
  if (layers.empty())
    chart.series.push_back(
        hash_curve(means, "correlation", traces.size() > 1 ? "mean of traces" : "trace", Weight::plain));
  chart.series.push_back(hash_curve(means, "correlation_noise", "noise of the same shape", Weight::bound));
  sort_points(chart);
  figure.panels.push_back({"", std::move(chart)});
  figure.width = Width::column;
  return {figure};
}

}  // namespace

std::vector<FigureKind> key_figures() {
  return {
      table_figure("ranking-loss", "how far rankings of positions are from the best order", ranking_loss),
      table_figure("cumulative-loss", "attention lost by dropping positions in the order of a ranking",
                   cumulative_loss),
      table_figure("hash", "correlation of attention and Hamming similarity, by bits", hash_correlation),
      lane_figure(
          "persistence", "persistence of importance by layer and KV head",
          {.title = "Persistence of importance by layer and KV head",
           .reading = "Left: how many of the positions that are important late had been important early; "
                      "only what lies above the right map, which is what a draw by lot has, is persistence.",
           .columns = {{"persistence", "persistence"}, {"chance", "by lot", false}}}),
      lane_figure(
          "heads", "where query heads look: sinks, locality, entropy",
          {.title = "Where query heads look",
           .reading = "Heads bright in the first map live on the first positions, in the second on the last "
                      "ones, in the third on all alike: no few positions hold their attention.",
           .columns = {{"sink", "attention on first positions"},
                       {"local", "attention on last positions"},
                       {"entropy_share", "entropy / largest entropy"}},
           .heads = "query head",
           .numbers = false}),
      lane_figure("key-norms", "correlation of key norm and attention by layer and KV head",
                  {.title = "Correlation of key norm and attention by layer and KV head",
                   .reading = "Negative cells are lanes whose small keys get the attention, where keeping "
                              "small keys is right; in positive ones it is wrong.",
                   .columns = {{"pearson", "of values (Pearson)"}, {"spearman", "of ranks (Spearman)"}},
                   .unit = "correlation",
                   .percent = false,
                   .diverging = true})};
}

}  // namespace kvsim::analysis
