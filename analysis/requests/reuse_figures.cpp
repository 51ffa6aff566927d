// Prefixes that are kept or computed again: in which tier they are found, when loading them is faster, and
// what compression changes.
#include <algorithm>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/cost_points.hpp"
#include "analysis/requests/break_even.hpp"
#include "analysis/requests/compression.hpp"
#include "analysis/requests/tier_tables.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

/// An engine of rows of kvsim requests compression; what keeps every token as it comes has no policy.
std::string engine_name(const RowFields& row) {
  const std::string policy = row.text("policy"), budget = row.text("budget"), keeping = row.text("keeping");
  if (policy.empty()) return keeping;
  return policy + (budget.empty() ? "" : " " + budget) +
         (keeping == keeping_name(Keeping::unknown) ? ", shared" : "");
}

/// Compression against reuse: what is hit, how long the first token takes, and who still answers; a figure
/// per rate of requests, and of each engine one number over another.
std::vector<Figure> compression(const FigureTables& tables, const FigureChoice& choice) {
  constexpr std::size_t kMostCurves = 8;
  const Records* table = tables.find(kCompressionTable);
  if (table == nullptr) return {};
  const auto fields = [&](std::size_t row) { return RowFields(*table, row); };
  std::vector<std::string> policies, engines;
  std::vector<std::size_t> rows;
  std::vector<double> rates;
  const auto rate = [&](std::size_t row) { return fields(row).number("rate").value_or(1); };
  for (std::size_t row = 0; row < table->rows.size(); ++row) {
    const std::string policy = fields(row).text("policy");
    if (!policy.empty()) policies.push_back(policy);
    if (!policy.empty() && !choice.wants(policy)) continue;
    rows.push_back(row);
    if (!policy.empty()) add_once(engines, engine_name(fields(row)));
    if (std::ranges::find(rates, rate(row)) == rates.end()) rates.push_back(rate(row));
  }
  for (const std::string& wanted : choice.policies) known_name(wanted, policies, "--policy");

  std::vector<Figure> out;
  for (const double at : rates) {
    Figure figure{.title = "Compression against reuse",
                  .reading =
                      "Engines of equal memory; shared: blocks of prompts stay for later ones. A policy that "
                      "shares does not know the question."};
    if (rates.size() > 1) figure.title += ", " + rounded_text(at) + " times as fast as the trace";
    if (engines.size() > kMostCurves)
      figure.remark = "The first " + std::to_string(kMostCurves) + " have a colour; --policy chooses others.";
    const auto add = [&](const char* title, const char* x, double x_unit, const char* y, Chart chart) {
      for (const std::size_t row : rows)
        if (const auto across = fields(row).number(x), up = fields(row).number(y);
            across && up && rate(row) == at)
          series_named(chart, engine_name(fields(row))).points.push_back({*across * x_unit, *up, {}, {}});
      for (Series& series : chart.series) {
        series.colour = place_in(engines, series.label);
        if (series.colour < 0) {
          series.weight = Weight::bound;
        } else if (static_cast<std::size_t>(series.colour) >= kMostCurves) {
          series = {.label = "others", .weight = Weight::faint, .points = std::move(series.points)};
        } else {  // the policy's name, and behind it what else the engine does
          series.policy = series.label;
          std::ranges::replace(series.policy, ' ', '+');
        }
      }
      sort_points(chart);
      if (!chart.series.empty()) figure.panels.push_back({title, std::move(chart)});
    };
    const Axis memory{.label = "memory (GiB)", .log = true, .at_values = true},
        first_token{.label = "TTFT p50 (s)", .log = true};
    add("tokens that hit", "memory_bytes", 1 / kGibibyte, "hit_rate",
        {.x = memory, .y = {.label = "of prompt tokens", .low = 0, .percent = true}});
    add("first token", "memory_bytes", 1 / kGibibyte, "ttft_p50", {.x = memory, .y = first_token});
    add("who still answers", "ttft_p50", 1, "right",
        {.x = first_token, .y = {.label = "of the items", .low = 0, .percent = true}, .joined = false});
    if (!figure.panels.empty()) out.push_back(std::move(figure));
  }
  return out;
}

/// What tells plans of tiers apart, and how it is said.
struct PlanTrait {
  const char *key, *tier, *said;
};
constexpr PlanTrait kPlanTraits[] = {
    {"device_policy", "device", ""},  {"device_capacity_bytes", "device", "device "},
    {"host_policy", "host", "host "}, {"host_capacity_bytes", "host", "host "},
    {"ssd_policy", "SSD", "SSD "},    {"ssd_capacity_bytes", "SSD", "SSD "}};

/// Without parameters.
std::string policy_name(const std::string& policy) {
  return policy.substr(0, policy.find('('));
}

std::string said(const PlanTrait& trait, const RowFields& plan) {
  if (const auto bytes = plan.number(trait.key))
    return trait.said + bytes_text(static_cast<std::uint64_t>(*bytes));
  const std::string text = plan.text(trait.key);
  if (text.empty())
    return std::string_view(trait.key).ends_with("_bytes") ? std::string("no ") + trait.tier : "";
  // Tiers that keep the same blocks as the device need not say so.
  if (*trait.said != '\0' && text == plan.text(kPlanTraits[0].key)) return "";
  return trait.said + policy_name(text);
}

/// Where the tokens of prompts are found: on the device, in the tiers behind it, or nowhere; a bar per plan.
std::vector<Figure> tiers(const FigureTables& tables, const FigureChoice& choice) {
  constexpr std::size_t kMostBars = 24;
  constexpr const char* kShares[] = {"device_share", "host_share", "ssd_share"};
  const Records* table = tables.find(kTiersTable);
  if (table == nullptr) return {};
  const auto plans = [&](std::size_t row) { return RowFields(*table, row); };
  std::vector<std::string> policies;
  for (const std::string& each : distinct(*table, "device_policy")) policies.push_back(policy_name(each));
  for (const std::string& wanted : choice.policies) known_name(wanted, policies, "--policy");
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < table->rows.size(); ++row)
    if (plans(row).text("window") == "all" && choice.wants(policy_name(plans(row).text("device_policy"))))
      rows.push_back(row);
  if (rows.empty()) return {};

  std::string setting;  // what all plans share: "device 20 GiB, lru"
  std::vector<std::string> labels(rows.size());
  const auto append = [](std::string& out, const std::string& text) {
    if (!text.empty()) out += (out.empty() ? "" : ", ") + text;
  };
  for (const PlanTrait& trait : kPlanTraits) {
    const bool differ = std::ranges::any_of(
        rows, [&](std::size_t row) { return plans(row)[trait.key] != plans(rows.front())[trait.key]; });
    if (!differ && !plans(rows.front()).text(trait.key).empty())
      append(setting, said(trait, plans(rows.front())));
    for (std::size_t i = 0; differ && i < rows.size(); ++i) append(labels[i], said(trait, plans(rows[i])));
  }
  Timeline bars{.x = {.label = "of the tokens of prompts", .low = 0, .high = 1, .percent = true},
                .colours = {"on the device", "in host memory", "on the SSD", "nowhere: computed"}};
  for (std::size_t i = 0; i < std::min(rows.size(), kMostBars); ++i) {
    const auto y = static_cast<double>(i);
    bars.y.categories.push_back(labels[i].empty() ? "all requests" : labels[i]);
    double end = 0;
    int colour = 0;
    for (const char* key : kShares) {
      const double share = plans(rows[i]).number(key).value_or(0);
      if (share > 0) bars.bars.push_back({y, end, end + share, colour, 1});
      end += share;
      ++colour;
    }
    if (end < 1) bars.bars.push_back({y, end, 1, colour, 1});
  }
  Figure figure{.title = "Where prompts are found" + (setting.empty() ? "" : ": " + setting),
                .reading = "A bar is all prompt tokens of a trace; what a nearer tier has counts there."};
  if (rows.size() > kMostBars)
    figure.remark = "The first " + std::to_string(kMostBars) + " of " + std::to_string(rows.size()) +
                    " plans; others by --policy.";
  figure.panels.push_back({"", std::move(bars)});
  return {std::move(figure)};
}

/// Loading a prefix against computing it again, over its length; a panel per machine.
std::vector<Figure> break_even(const FigureTables& tables, const FigureChoice&) {
  constexpr std::size_t kMostPanels = 6;
  const Records* table = tables.find(kBreakEvenTable);
  if (table == nullptr) return {};
  const auto fields = [&](std::size_t row) { return RowFields(*table, row); };
  const bool models = distinct(*table, "model").size() > 1;
  Figure figure{
      .title = "Loading a prefix or computing it again" + (models ? "" : ": " + fields(0).text("model")),
      .reading = "Where a line of loading lies below the dashed one, loading is faster."};
  for (std::size_t row = 0; row < table->rows.size(); ++row) {
    const std::string title =
        (models ? fields(row).text("model") + " on " : "") + fields(row).text("machine");
    auto panel = std::ranges::find_if(figure.panels, [&](const Panel& each) { return each.title == title; });
    if (panel == figure.panels.end()) {
      if (figure.panels.size() == kMostPanels) {
        figure.remark = "The first " + std::to_string(kMostPanels) + " machines.";
        continue;
      }
      figure.panels.push_back({title, Chart{.x = token_axis("prefix"), .y = {.label = "s", .log = true}}});
      panel = figure.panels.end() - 1;
    }
    Chart& chart = std::get<Chart>(panel->content);
    const auto seconds = [&](const char* key) { return fields(row).number(key).value_or(0); };
    const double x = fields(row).number("depth").value_or(0) / 1024;
    // The prefix is computed in the same time whichever tier it could come from.
    Series& computed = series_named(chart, "compute");
    computed.weight = Weight::bound;
    if (computed.points.empty() || computed.points.back().x < x)
      computed.points.push_back({x, seconds("recompute_seconds"), {}, {}});
    const bool host = fields(row).text("tier") == "host";
    Series& load = series_named(chart, host ? "load from host memory" : "load from SSD");
    load.colour = host ? 0 : 1;
    load.points.push_back({x, seconds("load_seconds"), {}, {}});
  }
  return {std::move(figure)};
}

std::vector<FigureKind> reuse_figures() {
  return {{.name = "compression",
           .summary = "prefix caching, compression or both on equal memory: hits, TTFT, answers",
           .needs = "rows of kvsim requests compression",
           .draw = compression,
           .table = kCompressionTable,
           .columns = compression_columns,
           .data = {.panel = "panel", .series = "engine", .x = "x", .y = "y"}},
          {.name = "tiers",
           .summary = "where the tokens of prompts are found: on the device, in host memory, on an SSD",
           .needs = "rows of kvsim requests tiers",
           .draw = tiers,
           .table = kTiersTable,
           .columns = tier_columns,
           .data = {.series = "tier", .y = "plan"}},
          {.name = "break-even",
           .summary = "the time to load a prefix from host memory or an SSD, and to compute it again",
           .needs = "rows of kvsim cost break-even",
           .draw = break_even,
           .table = kBreakEvenTable,
           .columns = break_even_columns,
           .data = {.panel = "machine", .series = "way", .x = "prefix", .y = "seconds"}}};
}

}  // namespace

std::vector<FigureKind> hit_figures();

std::vector<FigureKind> request_figures() {
  std::vector<FigureKind> out = hit_figures();
  for (FigureKind& kind : reuse_figures()) out.push_back(std::move(kind));
  return out;
}

}  // namespace kvsim::analysis
