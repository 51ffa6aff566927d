// One decode step, operation after operation: where its time goes, and what of the links' time hides.
#include <algorithm>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/cost_points.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/cost/latency.hpp"

namespace kvsim::analysis {
namespace {

using cost::OpClass;

constexpr std::size_t kMostPanels = 6;
enum Colour : int { kDevice, kWaited, kHidden };

/// What one line of the waterfall shows: it begins where the line before ends, and takes `shown`; `hidden`
/// goes on beside the lines that follow.
struct Line {
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
  std::vector<Line> lines{};
};

/// The lines of a point, in order of the step. All links are waited for at the same time.
std::vector<Group> groups_of(const CostPoints& points, std::size_t row) {
  const double waits = seconds(points, row, "transfer"), loading = seconds(points, row, "loading");
  const auto link = [&](const char* name, const char* key) {
    const double all = seconds(points, row, key), shown = std::min(all, waits);
    return Line{name, kWaited, shown, all - shown};
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

class Waterfall {
 public:
  explicit Waterfall(const CostPoints& points) : points_(points) {
    for (const std::size_t row : points.rows())
      for (const Group& group : groups_of(points, row))
        for (const Line& line : group.lines)
          if (line.shown + line.hidden > 0) add_once(names_, line.name);
  }

  Panel panel(std::size_t row) {
    const double step = points_.number(row, "tpot_seconds").value_or(0) * kPerMilli;
    Timeline out{.x = {.label = "ms of a decode step", .low = 0.0, .high = step},
                 .colours = {"device", "waited for", "hidden behind the device's work"}};
    // Lines of all panels, whether a point has them or not, in one order.
    for (const Group& group : groups_of(points_, row))
      for (const Line& line : group.lines)
        if (place_in(names_, line.name) >= 0) out.y.categories.emplace_back(line.name);
    const std::string point = points_.label(row, {});
    double begin = 0;
    for (const Group& group : groups_of(points_, row)) {
      const double next = begin + group.span * kPerMilli;
      for (const Line& line : group.lines) {
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
  return std::any_of(points.rows().begin(), points.rows().end(), [&](std::size_t row) {
    return seconds(points, row, "loading") > 0 || seconds(points, row, "choosing") > 0;
  });
}

std::vector<Figure> draw(const FigureTables& tables, const FigureChoice& choice) {
  const Records* costs = tables.find("cost");
  if (costs == nullptr) return {};
  const CostPoints points(*costs, choice);
  if (!something_to_show(points)) return {};
  Waterfall waterfall(points);
  const std::string setting = points.setting({});
  Figure figure{.title = "A decode step" + (setting.empty() ? "" : ": " + setting),
                .reading =
                    "Every operation of the mean decode step begins where the one before ends; what a link "
                    "carries while the device works takes no time of the step. Each panel has a scale of its "
                    "own."};
  const std::size_t shown = std::min(kMostPanels, points.rows().size());
  for (std::size_t i = 0; i < shown; ++i) figure.panels.push_back(waterfall.panel(points.rows()[i]));
  if (shown < points.rows().size())
    figure.remark = "The first " + std::to_string(shown) + " of " + std::to_string(points.rows().size()) +
                    " points; others by --policy and --budget.";
  figure.data = waterfall.take_data();
  return {std::move(figure)};
}

}  // namespace

FigureKind cost_waterfall_figure() {
  return {.name = "cost-waterfall",
          .summary = "a decode step, operation after operation, and what of the links' time hides",
          .needs = "rows of kvsim cost estimate with --offload or a selection",
          .draw = draw,
          .table = "cost"};
}

}  // namespace kvsim::analysis
