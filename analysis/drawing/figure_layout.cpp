#include "analysis/drawing/figure_layout.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/drawing/figure.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

constexpr double kColumnWidth = 238, kPageWidth = 493;  // 84 and 174 mm
constexpr double kGlyph = 0.6;                          // mean width of a character, in its size
constexpr double kEdge = 4, kGap = 8;
constexpr double kTitleLine = 12;
constexpr double kKeySample = 30;  // line and space before a name of the legend
constexpr std::size_t kLongestName = 30;

double text_width(std::size_t length, double size = kTextSize) {
  return static_cast<double>(length) * size * kGlyph;
}

/// What runs across and up the page in a panel, and the numbers on it.
struct Direction {
  const Axis* axis = nullptr;
  std::vector<double> values{};
  bool reversed = false, padded = true;
};
struct Directions {
  Direction across, up;
};

Directions directions_of(const Chart& chart) {
  Directions out{{&chart.x}, {&chart.y}};
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      out.across.values.push_back(point.x);
      for (const double y : {point.y, point.low.value_or(point.y), point.high.value_or(point.y)})
        out.up.values.push_back(y);
    }
  }
  if (chart.flipped) {
    std::swap(out.across, out.up);
    out.up.reversed = true;
  }
  return out;
}

std::vector<double> edges_of(const Axis& axis, std::size_t count) {
  const double half = cell_width(axis, count) / 2;
  return {cell_centre(axis, 0, count) - half, cell_centre(axis, count - 1, count) + half};
}

Directions directions_of(const HeatMap& map) {
  const std::size_t height = std::max<std::size_t>(map.rows.size(), 1);
  const std::size_t width = map.rows.empty() ? 1 : std::max<std::size_t>(map.rows.front().size(), 1);
  return {{&map.x, edges_of(map.x, width), false, false}, {&map.y, edges_of(map.y, height), true, false}};
}

Directions directions_of(const Timeline& timeline) {
  Directions out{{&timeline.x, {}, false, false}, {&timeline.y, {}, false, false}};
  for (const Timeline::Bar& bar : timeline.bars) {
    out.across.values.insert(out.across.values.end(), {bar.begin, bar.end});
    out.up.values.insert(out.up.values.end(), {bar.y - bar.height / 2, bar.y + bar.height / 2});
  }
  out.up.reversed = !timeline.y.categories.empty();
  return out;
}

Directions directions_of(const Panel& panel) {
  return std::visit([](const auto& content) { return directions_of(content); }, panel.content);
}

Scale scale_of(const Direction& direction, bool cells, double length, double place) {
  const Axis& axis = *direction.axis;
  Scale scale;
  if (!axis.categories.empty()) {
    scale = category_scale(axis, static_cast<std::size_t>(length / place), kLongestName);
  } else {
    // Indices of cells are short.
    const double least = cells && !axis.low ? 0 : 22;
    const auto count =
        static_cast<std::size_t>(std::max(2.0, length / (least > 0 ? std::max(place, least) : 13)));
    Axis drawn = axis;
    if (cells) {  // low and high are centres of cells: the edges lie half a cell further
      drawn.whole = drawn.whole || !axis.low;
      drawn.low = drawn.high = std::nullopt;
      drawn.log = false;
    }
    scale = number_scale(drawn, direction.values, std::max<std::size_t>(count, 1), direction.padded);
  }
  scale.reversed = direction.reversed;
  return scale;
}

double chart_height(const Chart& chart, double width) {
  if (chart.flipped && !chart.x.categories.empty())
    return std::max(40.0, static_cast<double>(chart.x.categories.size()) * 10.5);
  const std::string& label = chart.flipped ? chart.x.label : chart.y.label;  // runs up the page
  return std::max(std::clamp(width * 0.66, 120.0, 210.0), text_width(characters(label)));
}

double map_height(const HeatMap& map) {
  const auto rows = static_cast<double>(std::max<std::size_t>(map.rows.size(), 1));
  if (!map.y.categories.empty()) return rows * (rows <= 12 ? 13 : 10);
  return rows <= 16 ? std::max(rows * 12, 36.0) : std::clamp(rows * 9, 144.0, 220.0);
}

double timeline_height(const Timeline& timeline) {
  return timeline.y.categories.empty() ? 190 : static_cast<double>(timeline.y.categories.size()) * 11;
}

double plot_height(const Panel& panel, double width) {
  if (const auto* chart = std::get_if<Chart>(&panel.content)) return chart_height(*chart, width);
  if (const auto* map = std::get_if<HeatMap>(&panel.content)) return map_height(*map);
  return timeline_height(std::get<Timeline>(panel.content));
}

std::size_t grid_columns(const Figure& figure) {
  const std::size_t count = figure.panels.size();
  if (figure.width == Width::column) return 1;
  if (figure.columns > 0) return std::min(figure.columns, count);
  return count == 4 ? 2 : std::clamp<std::size_t>(count, 1, 3);
}

bool same_colours(const HeatMap& a, const HeatMap& b) {
  return a.unit == b.unit && a.diverging == b.diverging && a.log == b.log && a.percent == b.percent;
}

/// Range and ticks of the colours of all panels that agree with `map`.
ColourBar colour_bar(const Figure& figure, const HeatMap& map) {
  std::vector<double> values;
  for (const Panel& panel : figure.panels) {
    const auto* other = std::get_if<HeatMap>(&panel.content);
    if (other == nullptr || !same_colours(map, *other)) continue;
    for (const auto& row : other->rows)
      for (const auto& value : row)
        if (value && std::isfinite(*value)) values.push_back(*value);
  }
  Axis axis{.label = map.unit, .log = map.log, .percent = map.percent};
  if (map.diverging) {
    double reach = 0;
    for (const double value : values) reach = std::max(reach, std::fabs(value));
    if (reach == 0) reach = 1;
    axis.low = -reach;
    axis.high = reach;
    axis.log = false;
  }
  return {{}, number_scale(axis, values, 5, false), one_line(map.unit), 0, 0, map.diverging};
}

double bar_space(const ColourBar& bar) {
  return kGap + 8 + 9 + text_width(bar.scale.label_length()) + (bar.unit.empty() ? 0 : kTextLine);
}

/// The label all panels share is told once, at the edge of the grid.
bool shared_label(const Figure& figure, bool across) {
  const auto label = [&](const Panel& panel) {
    const Directions both = directions_of(panel);
    return (across ? both.across : both.up).axis->label;
  };
  return std::ranges::all_of(
      figure.panels, [&](const Panel& panel) { return label(panel) == label(figure.panels.front()); });
}

class Builder {
 public:
  Builder(const Figure& figure, const std::vector<std::size_t>& legend) : figure_(figure) {
    if (figure.panels.empty()) bug("a figure without panels", figure.name);
    columns_ = grid_columns(figure);
    rows_ = (figure.panels.size() + columns_ - 1) / columns_;
    out_.width = figure.width == Width::page ? kPageWidth : kColumnWidth;
    place_colours();
    place_legend(legend);
    place_across();
    place_up();
  }
  Layout take() { return std::move(out_); }

 private:
  void place_colours() {
    const HeatMap* first = nullptr;
    for (const Panel& panel : figure_.panels) {
      const auto* map = std::get_if<HeatMap>(&panel.content);
      out_.bars.push_back(map != nullptr ? std::optional(colour_bar(figure_, *map)) : std::nullopt);
      if (map == nullptr) continue;
      if (first == nullptr) first = map;
      shared_bar_ = shared_bar_ && same_colours(*first, *map);
      bar_space_ = std::max(bar_space_, bar_space(*out_.bars.back()));
    }
  }

  /// Beside the panels of a wide figure, otherwise below them.
  void place_legend(const std::vector<std::size_t>& legend) {
    if (legend.empty()) return;
    const double entry = kKeySample + text_width(*std::ranges::max_element(legend));
    beside_ = figure_.width == Width::page && bar_space_ == 0 && legend.size() > 1 && columns_ < 3;
    const double most = beside_ ? 1 : std::floor((out_.width - 2 * kEdge) / entry);
    const auto columns = static_cast<std::size_t>(std::max(most, 1.0));
    out_.legend_rows = (legend.size() + columns - 1) / columns;
    legend_space_ = beside_ ? entry + kGap : 0;
  }

  double space_right() const { return legend_space_ + (shared_bar_ ? bar_space_ : 0); }

  /// Margins and frames from left to right, and the scales.
  void place_across() {
    const bool shared_up = shared_label(figure_, false), shared_across = shared_label(figure_, true);
    out_.panels.resize(figure_.panels.size());
    double margin = 0;
    for (std::size_t i = 0; i < figure_.panels.size(); ++i) {
      const Directions both = directions_of(figure_.panels[i]);
      PanelLayout& panel = out_.panels[i];
      const bool cells = out_.bars[i].has_value();
      panel.up = scale_of(both.up, cells, plot_height(figure_.panels[i], 200), kTextLine * 0.93);
      panel.up_names = !both.up.axis->categories.empty();
      panel.across_names = !both.across.axis->categories.empty();
      if (!shared_up || i % columns_ == 0) panel.up_label = one_line(both.up.axis->label);
      if (!shared_across || i + columns_ >= figure_.panels.size())
        panel.across_label = one_line(both.across.axis->label);
      margin = std::max(margin, text_width(panel.up.label_length()) + 9 +
                                    (both.up.axis->label.empty() ? 0 : kTextLine + 2));
    }
    const double pitch = (out_.width - 2 * kEdge - space_right()) / static_cast<double>(columns_);
    const double own_bar = shared_bar_ ? 0 : bar_space_;
    for (std::size_t i = 0; i < figure_.panels.size(); ++i) {
      PanelLayout& panel = out_.panels[i];
      panel.frame.left = kEdge + pitch * static_cast<double>(i % columns_) + margin;
      panel.up_label_at = panel.frame.left - text_width(panel.up.label_length()) - 9 - kTextLine / 2;
      panel.frame.right = kEdge + pitch * static_cast<double>(i % columns_ + 1) - kGap - own_bar;
      // A name longer than its axis stays on the page.
      const double half = text_width(characters(panel.across_label)) / 2 + kEdge;
      panel.across_label_middle =
          std::max(half, std::min((panel.frame.left + panel.frame.right) / 2, out_.width - half));
      const Directions both = directions_of(figure_.panels[i]);
      const bool names = panel.across_names;
      const double width = panel.frame.width();
      panel.across = scale_of(both.across, out_.bars[i].has_value(), width, names ? kTextLine : 38.0);
      if (!names) continue;
      const double slot = width / static_cast<double>(both.across.axis->categories.size());
      panel.turned = text_width(panel.across.label_length()) > slot - 3;
    }
  }

  /// Heights, and frames from the top down.
  void place_up() {
    const auto glyphs = [&](double size) {
      return static_cast<std::size_t>((out_.width - 2 * kEdge) / (size * kGlyph));
    };
    out_.title = wrapped(one_line(figure_.title), glyphs(kTitleSize));
    out_.remark = wrapped(one_line(figure_.remark), glyphs(kTextSize));
    std::vector<double> above(rows_), inside(rows_), below(rows_);
    for (std::size_t i = 0; i < out_.panels.size(); ++i) {
      const PanelLayout& panel = out_.panels[i];
      const std::size_t row = i / columns_;
      if (!figure_.panels[i].title.empty()) above[row] = kTextLine + 2;
      inside[row] = std::max(inside[row], plot_height(figure_.panels[i], panel.frame.width()));
      const double labels = tick_space(panel);
      below[row] = std::max(below[row], labels + (panel.across_label.empty() ? 0 : kTextLine) + kGap);
    }
    const double legend =
        out_.legend_rows > 0 && !beside_ ? static_cast<double>(out_.legend_rows) * kLegendLine + kGap : 0;
    double height = kEdge + static_cast<double>(out_.title.size()) * kTitleLine + kGap / 2;
    const double top = height;
    for (std::size_t row = 0; row < rows_; ++row) height += above[row] + inside[row] + below[row];
    const double panels_end = height;
    const double beside_end = top + kGap + static_cast<double>(out_.legend_rows) * kLegendLine;
    if (beside_) height = std::max(height, beside_end);
    height += legend + static_cast<double>(out_.remark.size()) * (kTextLine - 1) + kEdge;
    out_.height = std::ceil(height);

    double at = out_.height - top;
    for (std::size_t row = 0; row < rows_; ++row) {
      at -= above[row];
      for (std::size_t i = row * columns_; i < std::min((row + 1) * columns_, out_.panels.size()); ++i) {
        out_.panels[i].frame.top = at;
        out_.panels[i].frame.bottom = at - inside[row];
        out_.panels[i].across_label_at = at - inside[row] - tick_space(out_.panels[i]) - kTextLine / 2;
      }
      at -= inside[row] + below[row];
    }
    out_.legend_left = beside_ ? out_.width - kEdge - legend_space_ + kGap : kEdge;
    out_.legend_top = beside_ ? out_.height - top - above[0] + 2 : out_.height - panels_end - kGap / 4;
    out_.remark_top = kEdge + static_cast<double>(out_.remark.size()) * (kTextLine - 1);
    for (std::size_t i = 0; i < out_.bars.size(); ++i) {
      if (!out_.bars[i]) continue;
      ColourBar& bar = *out_.bars[i];
      bar.frame = bar_frame(out_.panels[i].frame);
      // A name longer than its bar stays on the page.
      const double half = text_width(characters(bar.unit)) / 2 + kEdge;
      bar.label_height = std::max(half, std::min((bar.frame.bottom + bar.frame.top) / 2, out_.height - half));
      bar.label_at = bar.frame.right + 9 + text_width(bar.scale.label_length()) + kTextLine / 2;
    }
  }

  static double tick_space(const PanelLayout& panel) {
    return panel.turned ? text_width(panel.across.label_length()) + 7 : kTextLine + 8;
  }

  Frame bar_frame(const Frame& panel) const {
    const Frame& first = out_.panels.front().frame;
    Frame frame = shared_bar_ ? first : panel;
    frame.left = (shared_bar_ ? out_.width - kEdge - space_right() : panel.right) + kGap;
    frame.right = frame.left + 8;
    if (shared_bar_) frame.bottom = out_.panels.back().frame.bottom;
    frame.bottom = std::max(frame.bottom, frame.top - 150);
    return frame;
  }

  const Figure& figure_;
  std::size_t columns_ = 1, rows_ = 1;
  bool shared_bar_ = true, beside_ = false;
  double bar_space_ = 0, legend_space_ = 0;
  Layout out_{};
};

}  // namespace

double cell_width(const Axis& axis, std::size_t count) {
  if (!axis.low || !axis.high || count < 2) return 1;
  return (*axis.high - *axis.low) / static_cast<double>(count - 1);
}

double cell_centre(const Axis& axis, std::size_t i, std::size_t count) {
  return axis.low.value_or(0) + static_cast<double>(i) * cell_width(axis, count);
}

Layout layout_of(const Figure& figure, const std::vector<std::size_t>& legend) {
  return Builder(figure, legend).take();
}

}  // namespace kvsim::analysis
