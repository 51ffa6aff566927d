#include "analysis/report/live_data.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <map>

#include "analysis/drawing/figure.hpp"
#include "analysis/drawing/figure_layout.hpp"
#include "analysis/drawing/panel_script.hpp"
#include "analysis/drawing/policy_style.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

value json_of(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? value(*number) : value(nullptr);
}

value json_of(const std::vector<std::string>& texts) {
  array out;
  for (const std::string& text : texts) out.emplace_back(one_line(text));
  return out;
}

// ---- Figures ----

value json_of(const Axis& axis) {
  return object{{"label", axis.label},
                {"log", axis.log},
                {"low", json_of(axis.low)},
                {"high", json_of(axis.high)},
                {"names", json_of(axis.categories)},
                {"percent", axis.percent},
                {"line", json_of(axis.line)},
                {"said", axis.line_label},
                {"ticks", boost::json::value_from(axis.ticks)}};
}

object json_of(const Chart& chart, const Styles& light, const Styles& dark) {
  array all;
  for (const Series& series : chart.series) {
    array points;
    for (const Point& point : series.points)
      points.push_back(array{point.x, json_of(point.y), json_of(point.low), json_of(point.high)});
    object out{{"label", one_line(series.label)},
               {"group", series.group},
               {"weight", series.weight == Weight::plain   ? "plain"
                          : series.weight == Weight::bound ? "bound"
                                                           : "faint"},
               {"dots", series.dots || !chart.joined},
               {"colours", array{hex(light.colour(series)), hex(dark.colour(series))}},
               {"points", std::move(points)}};
    if (!series.policy.empty()) {
      const PolicyStyle style = policy_style(series.policy);
      out["mark"] = array{style.shape, style.open, style.dash};
    }
    all.push_back(std::move(out));
  }
  return {{"x", json_of(chart.x)},
          {"y", json_of(chart.y)},
          {"flipped", chart.flipped},
          {"series", std::move(all)}};
}

object json_of(const HeatMap& map, const Styles&, const Styles&) {
  array rows;
  for (const auto& row : map.rows) {
    array out;
    for (const auto& cell : row) out.push_back(json_of(cell));
    rows.push_back(std::move(out));
  }
  return {{"x", json_of(map.x)},
          {"y", json_of(map.y)},
          {"unit", map.unit},
          {"rows", std::move(rows)},
          {"percent", map.percent}};
}

/// What the colours of a heat map mean: as in print, one bar for all panels that agree in unit and kind.
object json_of(const ColourBar& bar, const Styles& light, const Styles& dark) {
  array ticks, ramps;
  for (const Tick& tick : bar.scale.ticks) ticks.push_back(array{tick.at, tick.label});
  for (const Styles* styles : {&light, &dark}) {
    array stops;
    for (const Rgb colour : bar.diverging ? styles->palette().diverging : styles->palette().sequential)
      stops.emplace_back(hex(colour));
    ramps.push_back(std::move(stops));
  }
  return {{"low", bar.scale.low},
          {"high", bar.scale.high},
          {"log", bar.scale.log},
          {"ticks", std::move(ticks)},
          {"ramps", std::move(ramps)}};
}

object json_of(const Timeline& timeline, const Styles& light, const Styles& dark) {
  array bars, colours;
  for (const Timeline::Bar& bar : timeline.bars)
    bars.push_back(array{bar.y, bar.begin, bar.end, bar.colour, bar.height});
  for (std::size_t i = 0; i < timeline.colours.size(); ++i)
    colours.push_back(
        array{timeline.colours[i], hex(light.palette().series[i % 8]), hex(dark.palette().series[i % 8])});
  return {{"x", json_of(timeline.x)},
          {"y", json_of(timeline.y)},
          {"bars", std::move(bars)},
          {"colours", std::move(colours)}};
}

value json_of(const Figure& figure) {
  const Styles light(figure, Theme::light), dark(figure, Theme::dark);
  const bool maps = std::ranges::any_of(
      figure.panels, [](const Panel& panel) { return std::holds_alternative<HeatMap>(panel.content); });
  const Layout layout = maps ? layout_of(figure, {}) : Layout{};
  array panels;
  for (std::size_t i = 0; i < figure.panels.size(); ++i) {
    const Panel& panel = figure.panels[i];
    object out =
        std::visit([&](const auto& content) { return json_of(content, light, dark); }, panel.content);
    out["title"] = one_line(panel.title);
    if (maps && layout.bars[i]) out["bar"] = json_of(*layout.bars[i], light, dark);
    panels.push_back(std::move(out));
  }
  return object{{"name", figure.name}, {"panels", std::move(panels)}};
}

// ---- Means and verdicts ----

/// Bytes held by policy and budget, the mean over what was asked or replayed; the first holds at any budget.
std::map<std::pair<std::string, std::string>, double> held_bytes(const ReportedStudy& study,
                                                                 const std::string& cut) {
  const Records& answers = study.table(kAnswersTable);
  const bool asked = !answers.rows.empty();
  const Records rows = at_cut(asked ? answers : study.results, cut);
  std::map<std::pair<std::string, std::string>, RunningMean> means;
  if (!rows.rows.empty()) {
    const std::size_t params = rows.column("params"), budget = rows.column("budget"),
                      bytes = rows.column(asked ? "held_bytes" : "kept_bytes"),
                      part = asked ? params : rows.column("scope");
    for (const std::vector<Value>& row : rows.rows)
      if (const auto held = number(row[bytes]); held && (asked || exact_field(row[part]) == "all"))
        means[{exact_field(row[params]), exact_field(row[budget])}].add(*held);
  }
  std::map<std::pair<std::string, std::string>, double> out;
  for (const auto& [key, mean] : means) out.emplace(key, *mean.value());
  return out;
}

std::string of_items(const Metric& metric, const PolicyMean& mean, bool interval) {
  const bool right = std::string_view(metric.key) == "right";
  const auto count = [&](double share) {
    return std::to_string(std::lround(share * static_cast<double>(mean.traces)));
  };
  std::string text = right ? count(mean.mean) + " of " + std::to_string(mean.traces) + " right"
                           : value_text(metric, mean.mean);
  if (!interval) return text;
  if (!mean.low || !mean.high) return text + " (too few items for an interval)";
  return text + " (" +
         (right ? count(*mean.low) + " to " + count(*mean.high)
                : interval_text(metric, mean.low, mean.high)) +
         ")";
}

/// Which policy is best at a budget, how sure that is, what it holds and what it costs.
std::string verdict(const Evidence& at, const Metric& metric, const Win& win, const PriceList& prices,
                    const std::map<std::pair<std::string, std::string>, double>& held) {
  const bool right = std::string_view(metric.key) == "right";
  const PolicyMean& best = win.best.front();
  std::vector<std::string> names;
  for (const PolicyMean& each : win.best) names.push_back(each.policy);
  std::string text = capitalised(at.cut() == "prompt"     ? "question known"
                                 : at.cut() == "question" ? "question not known"
                                                          : cut_meaning(at.cut()));
  text += (text.empty() ? "Budget " : ", ") + budget_text(win.budget) + ": " + names_text(names, 3);
  if (right)
    text += (names.size() > 1 ? " answer " : " answers ") + of_items(metric, best, true);
  else
    text += (names.size() > 1 ? " have " : " has ") + std::string(metric.label) + ' ' +
            of_items(metric, best, true);
  if (win.next)
    text += ", the next best, " + quoted_name(win.next->policy) + ", " + of_items(metric, *win.next, false);
  std::vector<std::string> rivals;
  for (const PolicyMean& each : win.rivals) rivals.push_back(each.policy);
  if (!rivals.empty())
    text += "; not distinguishable from the best: " + names_text(rivals, 3);
  else if (win.next)
    text += names.size() > 1 ? "; the others are distinguishably behind" : "; the lead is distinguishable";
  if (const auto own = held.find({best.params, win.budget}); own != held.end()) {
    text += "; `" + best.policy + "` holds " + bytes_text(static_cast<std::uint64_t>(own->second));
    const auto whole =
        std::ranges::find_if(held, [](const auto& each) { return each.first.first == "full()+uniform()"; });
    if (whole != held.end()) text += " of " + bytes_text(static_cast<std::uint64_t>(whole->second));
  }
  const auto price = prices.at(best.params, win.budget), full = prices.full_cache();
  if (price && full && full->ttft_seconds > 0) {
    const double more = 100 * (price->ttft_seconds / full->ttft_seconds - 1);
    char share[32];
    std::snprintf(share, sizeof share, std::fabs(more) < 0.1 ? "%.2f" : "%.1f", std::fabs(more));
    text += "; " + std::string(more < 0 ? "\u2212" : "+") + share + "% time to first token on " +
            quoted_name(prices.machine()) + (price->fits ? "" : ", whose memory it does not fit");
  }
  std::vector<std::string> apart;
  for (const PolicyMean& each : at.means({metric.key, kAllWorkloads, win.budget}))
    if (is_compared(each.policy, each.role) && at.overspends(each.params, win.budget) &&
        metric.prefers(each.mean, best.mean))
      apart.push_back(each.policy);
  if (!apart.empty())
    text += "; not ranked: " + names_text(apart, 3) + ", better by holding more than the budget";
  return text + '.';
}

const Metric* deciding(const Evidence& at) {
  for (const char* key : {"right", "kept", "kl"})
    if (at.decides(key)) return &answer_metric(key);
  return at.leading_metric();
}

class LiveMeans {
 public:
  LiveMeans(const ReportedStudy& study, const std::vector<Evidence>& cuts, const PriceList& prices) {
    if (!study.table("means").rows.empty()) labels_ = policy_labels(study.table("means"));
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      const Evidence& at = cuts[c];
      cuts_.push_back(object{{"key", at.cut()}, {"title", cut_title(at.cut())}});
      const auto held = held_bytes(study, at.cut());
      for (const Metric& metric : answer_metrics()) add(metric, at, c);
      for (const Metric& metric : metrics()) add(metric, at, c);
      for (const std::string& budget : at.budgets())
        for (const auto& [params, label] : labels_) {
          const auto own = held.find({params, budget});
          const auto price = prices.at(params, budget);
          const bool over = at.overspends(params, budget);
          if (own == held.end() && !price && !over) continue;
          costs_.push_back(array{c, place(budgets_, budget), policy(params, ""),
                                 own == held.end() ? value(nullptr) : value(own->second),
                                 price ? value(price->ttft_seconds) : value(nullptr),
                                 price ? value(price->peak_bytes) : value(nullptr), over});
        }
      const Metric* metric = deciding(at);
      if (metric == nullptr) continue;
      for (const Win& win : wins(at, *metric))
        verdicts_.push_back(
            array{c, place(budgets_, win.budget), metric->key, verdict(at, *metric, win, prices, held)});
    }
  }

  object made(const PriceList& prices) && {
    return {{"cuts", std::move(cuts_)},
            {"metrics", std::move(metrics_)},
            {"workloads", json_of(workloads_)},
            {"budgets", json_of(budgets_)},
            {"policies", std::move(policies_)},
            {"means", std::move(means_)},
            {"behind", std::move(behind_)},
            {"costs", std::move(costs_)},
            {"verdicts", std::move(verdicts_)},
            {"machine", prices.machine()},
            {"full_ttft", prices.full_cache() ? value(prices.full_cache()->ttft_seconds) : value(nullptr)}};
  }

 private:
  static std::size_t place(std::vector<std::string>& names, const std::string& name) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i] == name) return i;
    names.push_back(name);
    return names.size() - 1;
  }

  std::size_t policy(const std::string& params, const std::string& role) {
    const auto [found, fresh] = places_.emplace(params, policies_.size());
    if (fresh) {
      const std::string& label = labels_.at(params);
      const PolicyStyle style = policy_style(label);
      policies_.push_back(object{{"label", one_line(label)},
                                 {"role", role},
                                 {"colours", array{hex(style.colours[0]), hex(style.colours[1])}},
                                 {"mark", array{style.shape, style.open, style.dash}}});
    } else if (!role.empty()) {
      policies_[found->second].as_object()["role"] = role;
    }
    return found->second;
  }

  void add(const Metric& metric, const Evidence& at, std::size_t cut) {
    if (metric.label == nullptr) return;
    std::vector<std::string> workloads{kAllWorkloads};
    workloads.insert(workloads.end(), at.workloads().begin(), at.workloads().end());
    std::optional<std::size_t> m;
    for (const std::string& workload : workloads)
      for (const std::string& budget : at.budgets()) {
        const Question question{metric.key, workload, budget};
        const std::vector<PolicyMean>& all = at.means(question);
        if (all.empty()) continue;
        if (!m) m = known(metric);
        const std::size_t w = place(workloads_, workload), b = place(budgets_, budget);
        for (const PolicyMean& each : all)
          means_.push_back(array{*m, cut, w, b, policy(each.params, each.role), each.traces, each.mean,
                                 json_of(each.low), json_of(each.high)});
        const std::vector<PolicyMean> ranked = contest(at, question, metric);
        if (metric.better == Better::neither || ranked.size() < 2) continue;
        for (const PolicyMean& each : ranked)
          if (const auto behind = at.difference(question, each.params, ranked.front().params))
            behind_.push_back(array{*m, cut, w, b, policy(each.params, ""), behind->difference,
                                    json_of(behind->low), json_of(behind->high)});
      }
  }

  std::size_t known(const Metric& metric) {
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      if (metrics_[i].as_object()["key"].as_string() == metric.key) return i;
    metrics_.push_back(object{{"key", metric.key},
                              {"label", metric.label},
                              {"meaning", metric.meaning},
                              {"percent", metric.percent},
                              {"better", metric.better == Better::higher  ? 1
                                         : metric.better == Better::lower ? -1
                                                                          : 0}});
    return metrics_.size() - 1;
  }

  std::map<std::string, std::string> labels_{};  ///< by params
  std::map<std::string, std::size_t> places_{};  ///< of policies, by params
  std::vector<std::string> workloads_{}, budgets_{};
  array cuts_, metrics_, policies_, means_, behind_, costs_, verdicts_;
};

array json_of(const std::vector<Figure>& figures) {
  array out;
  for (const Figure& figure : figures) out.push_back(json_of(figure));
  return out;
}

}  // namespace

std::string live_data(const ReportedStudy& study, const std::vector<Evidence>& cuts, const PriceList& prices,
                      const std::vector<Figure>& figures) {
  object out = LiveMeans(study, cuts, prices).made(prices);
  out["figures"] = json_of(figures);
  return boost::json::serialize(out);
}

std::string live_data(const std::vector<Figure>& figures) {
  return boost::json::serialize(object{{"figures", json_of(figures)}});
}

}  // namespace kvsim::analysis
