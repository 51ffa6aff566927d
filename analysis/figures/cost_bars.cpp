// Costs of each point: memory, the time per token, and that to the first one, as bars of parts end to end;
// and one decode step, operation after operation.
#include <algorithm>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/cost_points.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/message_text.hpp"
#include "sim/cost/latency.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostCostBars = 24;

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
  constexpr std::size_t kMostPanels = 3;
  std::vector<double> all;
  for (const std::size_t row : points.rows())
    if (const auto prompt = points.number(row, "prompt")) all.push_back(*prompt);
  std::ranges::sort(all);
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
        if (const auto limit = points_.number(row, spec_.limit)) {
          out.x.line = *limit * spec_.unit;
          out.x.line_label = memory_text(*out.x.line);
        }
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
    if (out.y.categories.size() == kMostCostBars) {
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
        "The first " + std::to_string(kMostCostBars) + " bars of a panel; others by --policy and --budget.";
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

using cost::OpClass;

enum Colour : int { kDevice, kWaited, kHidden };

/// What one line of the waterfall shows: it begins where the line before ends, and takes `shown`; `hidden`
/// goes on beside the lines that follow.
struct BarLine {
  const char* name;
  Colour colour = kDevice;
  double shown = 0, hidden = 0;
};

double seconds(const CostPoints& points, std::size_t row, const std::string& key) {
  return points.number(row, "step_" + key + "_seconds").value_or(0);
}

/// Lines that begin at the same time, and the time until the next ones do.
struct Group {
  double span = 0;
  std::vector<BarLine> lines{};
};

/// The lines of a point, in order of the step. All links are waited for at the same time.
std::vector<Group> groups_of(const CostPoints& points, std::size_t row) {
  const double waits = seconds(points, row, "transfer"), loading = seconds(points, row, "loading");
  const auto link = [&](const char* name, const char* key) {
    const double all = seconds(points, row, key), shown = std::min(all, waits);
    return BarLine{name, kWaited, shown, all - shown};
  };
  const double choosing = seconds(points, row, "choosing");
  std::vector<Group> out;
  const auto alone = [&](const char* name, Colour colour, double span) {
    out.push_back({span, {{name, colour, span}}});
  };
  alone("choosing", kDevice, choosing);
  out.push_back({waits,
                 {link("host link", "host_link"),
                  link("SSD", "ssd_link"),
                  {"storing", kWaited, waits > loading ? waits : 0}}});
  for (const OpClass op : {OpClass::attention, OpClass::policy, OpClass::linear, OpClass::elementwise,
                           OpClass::communication, OpClass::head})
    alone(op_name(op), kDevice,
          seconds(points, row, op_name(op)) - (op == OpClass::attention ? choosing : 0));
  alone("waiting for the host", kWaited, seconds(points, row, "host"));
  return out;
}

/// One decode step, operation after operation: where its time goes, and what of the links' time hides.
class Waterfall {
 public:
  explicit Waterfall(const CostPoints& points) : points_(points) {
    for (const std::size_t row : points.rows())
      for (const Group& group : groups_of(points, row))
        for (const BarLine& line : group.lines)
          if (line.shown + line.hidden > 0) add_once(names_, line.name);
  }

  Panel panel(std::size_t row) {
    const double step = points_.number(row, "tpot_seconds").value_or(0) * kPerMilli;
    Timeline out{.x = {.label = "ms of a decode step", .low = 0.0, .high = step},
                 .colours = {"device", "waited for", "hidden behind the device's work"}};
    // Lines of all panels, whether a point has them or not, in one order.
    for (const Group& group : groups_of(points_, row))
      for (const BarLine& line : group.lines)
        if (place_in(names_, line.name) >= 0) out.y.categories.emplace_back(line.name);
    const std::string point = points_.label(row, {});
    double begin = 0;
    for (const Group& group : groups_of(points_, row)) {
      const double next = begin + group.span * kPerMilli;
      for (const BarLine& line : group.lines) {
        const int y = place_in(out.y.categories, line.name);
        if (y < 0) continue;
        const double shown = line.shown * kPerMilli, hidden = line.hidden * kPerMilli;
        if (shown > 0) out.bars.push_back({static_cast<double>(y), begin, begin + shown, line.colour, 1});
        // What is hidden begins where the waiting ends: beside what the device does then.
        if (hidden > 0) out.bars.push_back({static_cast<double>(y), next, next + hidden, kHidden, 1});
        data_.rows.push_back({point, std::string(line.name), begin, shown, hidden});
      }
      begin = next;
    }
    return {point + ": " + rounded_text(step, 1) + " ms", std::move(out)};
  }

  Records take_data() { return std::move(data_); }

 private:
  const CostPoints& points_;
  std::vector<std::string> names_{};  ///< of lines that are something somewhere
  Records data_{{{"point", "", "policy and what tells it from others"},
                 {"line", "", "operations, or a link"},
                 {"begin", "ms", "since the step began"},
                 {"shown", "ms", "by which it lengthens the step"},
                 {"hidden", "ms", "of a link, beside what the device does"}},
                {}};
};

/// Without links and choosing, cost-time says it all.
bool something_to_show(const CostPoints& points) {
  return std::ranges::any_of(points.rows(), [&](std::size_t row) {
    return seconds(points, row, "loading") > 0 || seconds(points, row, "choosing") > 0;
  });
}

std::vector<Figure> waterfall(const FigureTables& tables, const FigureChoice& choice) {
  const Records* costs = tables.find("cost");
  if (costs == nullptr) return {};
  const CostPoints points(*costs, choice);
  if (!something_to_show(points)) return {};
  Waterfall lines(points);
  const std::string setting = points.setting({});
  Figure figure{
      .title = "A decode step" + (setting.empty() ? "" : ": " + setting),
      .reading =
          "Every operation of the mean decode step begins where the one before ends; what a link carries "
          "while the device works takes no time of the step. Each panel has a scale of its own."};
  constexpr std::size_t kMostPanels = 6;
  const std::size_t shown = std::min(kMostPanels, points.rows().size());
  for (std::size_t i = 0; i < shown; ++i) figure.panels.push_back(lines.panel(points.rows()[i]));
  if (shown < points.rows().size())
    figure.remark = "The first " + std::to_string(shown) + " of " + std::to_string(points.rows().size()) +
                    " points; others by --policy and --budget.";
  figure.data = lines.take_data();
  return {std::move(figure)};
}

}  // namespace

std::vector<FigureKind> cost_bars() {
  return {bars_figure("cost-memory", "bytes by what they are for, when the prefill needs most and at the end",
                      {.title = "Memory",
                       .reading = "A bar is what one device holds, at the moment of the prefill that needs "
                                  "most and after the last token; the line is the machine's memory.",
                       .bars = {{", prefill",
                                 {"weights_bytes", "prefill_cache_bytes", "prefill_activation_bytes",
                                  "prefill_scratch_bytes", "reserved_bytes"}},
                                {", at the end",
                                 {"weights_bytes", "cache_bytes", "activation_bytes", "scratch_bytes",
                                  "reserved_bytes"}}},
                       .parts = {"weights", "cache", "activations", "scratch of the policy",
                                 "reserved by the runtime"},
                       .axis = "GiB per device",
                       .unit = 1 / kGibibyte,
                       .limit = "machine_bytes"}),
          bars_figure(
              "cost-time", "time per token by class of operations",
              with_operations("step", {.title = "Time per token",
                                       .reading = "A bar is the mean decode step, which gives every sequence "
                                                  "of the batch one token, by class of operations.",
                                       .axis = "ms per decode step",
                                       .unit = kPerMilli})),
          {.name = "cost-waterfall",
           .summary = "a decode step, operation after operation, and what of the links' time hides",
           .needs = "rows of kvsim cost estimate with --offload or a selection",
           .draw = waterfall,
           .table = "cost"},
          bars_figure(
              "cost-prefill", "time to the first token by class of operations",
              with_operations("prefill", {.title = "Time to the first token",
                                          .reading = "A bar is the prefill of all sequences of the batch, "
                                                     "compression included, by class of operations.",
                                          .axis = "s until the first token"}))};
}

}  // namespace kvsim::analysis
