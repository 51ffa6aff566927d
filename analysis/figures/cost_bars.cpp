// Costs as bars of parts end to end, point by point: memory, the time per token, and that to the first one.
#include <algorithm>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/cost_points.hpp"
#include "sim/cost/latency.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostPanels = 3, kMostBars = 24;

struct CostBars {
  const char *title = "", *reading = "";
  struct Bar {
    const char* suffix = "";             ///< after the point's name: ", prefill"
    std::vector<std::string> columns{};  ///< one for each part
  };
  std::vector<Bar> bars{};           ///< of every point
  std::vector<const char*> parts{};  ///< names; as many as each bar has
  const char* axis = "";
  double unit = 1;
  const char* limit = "";  ///< column a line stands at; empty: none
};

/// Smallest, middle and largest of more than three.
std::vector<double> shown_prompts(const CostPoints& points) {
  std::vector<double> all;
  for (const std::size_t row : points.rows())
    if (const auto prompt = points.number(row, "prompt")) all.push_back(*prompt);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all.size() <= kMostPanels ? all : std::vector{all.front(), all[all.size() / 2], all.back()};
}

class Bars {
 public:
  Bars(const CostPoints& points, const CostBars& spec) : points_(points), spec_(spec) {
    for (std::size_t part = 0; part < spec.parts.size(); ++part)
      if (somewhere(part)) shown_.push_back(part);
  }

  Panel panel(double prompt, bool named) {
    Timeline out{.x = {.label = spec_.axis, .low = 0.0}};
    for (const std::size_t part : shown_) out.colours.emplace_back(spec_.parts[part]);
    for (const std::size_t row : points_.rows()) {
      if (points_.number(row, "prompt") != prompt) continue;
      if (*spec_.limit != '\0' && !out.x.line)
        if (const auto limit = points_.number(row, spec_.limit)) out.x.line = *limit * spec_.unit;
      for (const CostBars::Bar& bar : spec_.bars) add(out, row, bar);
    }
    return {named ? "prompt " + tokens_text(prompt) : "", std::move(out)};
  }

  bool cut() const { return cut_; }
  Records take_data() { return std::move(data_); }

 private:
  double value(std::size_t row, const CostBars::Bar& bar, std::size_t part) const {
    return points_.number(row, bar.columns[part]).value_or(0) * spec_.unit;
  }

  /// Parts that are nothing everywhere need no colour.
  bool somewhere(std::size_t part) const {
    for (const std::size_t row : points_.rows())
      for (const CostBars::Bar& bar : spec_.bars)
        if (value(row, bar, part) > 0) return true;
    return false;
  }

  void add(Timeline& out, std::size_t row, const CostBars::Bar& bar) {
    if (out.y.categories.size() == kMostBars) {
      cut_ = true;
      return;
    }
    const std::string label = points_.label(row, {"prompt"}) + bar.suffix;
    const auto y = static_cast<double>(out.y.categories.size());
    out.y.categories.push_back(label);
    double end = 0;
    for (std::size_t i = 0; i < shown_.size(); ++i) {
      const double size = value(row, bar, shown_[i]);
      data_.rows.push_back({points_.text(row, "prompt"), label, spec_.parts[shown_[i]], size});
      if (size > 0) out.bars.push_back({y, end, end + size, static_cast<int>(i), 1});
      end += size;
    }
  }

  const CostPoints& points_;
  const CostBars& spec_;
  std::vector<std::size_t> shown_{};  ///< parts
  bool cut_ = false;
  Records data_{{{"prompt", "tokens", "of every sequence"},
                 {"point", "", "policy and what tells it from others"},
                 {"part", "", "what the colour means"},
                 {"value", "", spec_.axis}},
                {}};
};

/// A panel per prompt length, at most three.
std::vector<Figure> draw(const FigureTables& tables, const FigureChoice& choice, const CostBars& spec) {
  const Records* costs = tables.find("cost");
  if (costs == nullptr) return {};
  const CostPoints points(*costs, choice);
  const std::vector<double> prompts = shown_prompts(points);
  if (prompts.empty()) return {};
  const std::string setting = points.setting({});
  Figure figure{.title = spec.title + (setting.empty() ? "" : ": " + setting), .reading = spec.reading};
  figure.columns = 1;  // room for names
  Bars bars(points, spec);
  for (const double prompt : prompts) figure.panels.push_back(bars.panel(prompt, prompts.size() > 1));
  if (bars.cut())
    figure.remark =
        "The first " + std::to_string(kMostBars) + " bars of a panel; others by --policy and --budget.";
  figure.data = bars.take_data();
  return {std::move(figure)};
}

FigureKind bars_figure(const char* name, const char* summary, const CostBars& spec) {
  return {.name = name,
          .summary = summary,
          .needs = "rows of kvsim cost estimate",
          .draw = [spec](const FigureTables& tables,
                         const FigureChoice& choice) { return draw(tables, choice, spec); },
          .table = "cost"};
}

/// Adds the classes of operations of a pass, and what the host takes.
CostBars with_operations(const std::string& pass, CostBars bars) {
  CostBars::Bar& bar = bars.bars.emplace_back();
  for (std::size_t op = 0; op < cost::kOpClasses; ++op) {
    bars.parts.push_back(cost::op_name(static_cast<cost::OpClass>(op)));
    bar.columns.push_back(pass + '_' + bars.parts.back() + "_seconds");
  }
  bars.parts.push_back("waiting for the host");
  bar.columns.push_back(pass + "_host_seconds");
  return bars;
}

}  // namespace

FigureKind cost_memory_figure() {
  return bars_figure(
      "cost-memory", "bytes by what they are for, when the prefill needs most and at the end",
      {.title = "Memory",
       .reading =
           "A bar is what one device holds, at the moment of the prefill that needs most and after the last "
           "token; the line is the machine's memory.",
       .bars = {{", prefill",
                 {"weights_bytes", "prefill_cache_bytes", "prefill_activation_bytes", "prefill_scratch_bytes",
                  "reserved_bytes"}},
                {", at the end",
                 {"weights_bytes", "cache_bytes", "activation_bytes", "scratch_bytes", "reserved_bytes"}}},
       .parts = {"weights", "cache", "activations", "scratch of the policy", "reserved by the runtime"},
       .axis = "GiB per device",
       .unit = 1 / kGibibyte,
       .limit = "machine_bytes"});
}

FigureKind cost_time_figure() {
  return bars_figure(
      "cost-time", "time per token by class of operations",
      with_operations("step", {.title = "Time per token",
                               .reading = "A bar is the mean decode step, which gives every sequence of "
                                          "the batch one token, by class of operations.",
                               .axis = "ms per decode step",
                               .unit = kPerMilli}));
}

FigureKind cost_prefill_figure() {
  return bars_figure(
      "cost-prefill", "time to the first token by class of operations",
      with_operations("prefill", {.title = "Time to the first token",
                                  .reading = "A bar is the prefill of all sequences of the batch, "
                                             "compression included, by class of operations.",
                                  .axis = "s until the first token"}));
}

}  // namespace kvsim::analysis
