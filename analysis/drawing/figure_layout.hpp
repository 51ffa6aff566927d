#pragma once
/// Where everything of a figure stands, in points (1/72 inch) from the lower left of its page. Legends and
/// colour bars have a place of their own: they never lie over data.
#include <optional>
#include <string>
#include <vector>

#include "analysis/drawing/axis_scale.hpp"
#include "analysis/drawing/figure.hpp"

namespace kvsim::analysis {

inline constexpr double kTextSize = 7.5, kTitleSize = 9.5;
inline constexpr double kTextLine = 10.5;    ///< from one line of text to the next
inline constexpr double kLegendLine = 11.5;  ///< from one entry of the legend to the next

struct Frame {
  double left = 0, right = 0, bottom = 0, top = 0;
  double width() const { return right - left; }
  double height() const { return top - bottom; }
};

/// As seen on the page: `across` and `up` are y and x of a flipped chart.
struct PanelLayout {
  Frame frame{};  ///< what the axes enclose
  Scale across{}, up{};
  bool turned = false;  ///< labels of `across` run up the page
  std::string across_label{}, up_label{};
  double across_label_at = 0, across_label_middle = 0;  ///< height of its middle, and how far right that is
  double up_label_at = 0;                               ///< how far right its middle is
  bool across_names = false, up_names = false;          ///< categories, not numbers
};

/// What colours of heat maps mean: one for all panels that agree in unit and kind.
struct ColourBar {
  Frame frame{};
  Scale scale{};
  std::string unit{};
  double label_at = 0, label_height = 0;  ///< middle of the unit's name
  bool diverging = false;
};

struct Layout {
  double width = 0, height = 0;
  std::vector<std::string> title{}, remark{};  ///< lines
  double remark_top = 0;
  std::vector<PanelLayout> panels{};
  std::vector<std::optional<ColourBar>> bars{};  ///< of each panel's colours; equal for panels that share it
  double legend_left = 0, legend_top = 0;
  std::size_t legend_rows = 0;  ///< entries below each other
};

/// `legend`: characters of its entries.
Layout layout_of(const Figure& figure, const std::vector<std::size_t>& legend);

/// Centre of cell `i` of `count` along an axis of a heat map, and the width of a cell.
double cell_centre(const Axis& axis, std::size_t i, std::size_t count);
double cell_width(const Axis& axis, std::size_t count);

}  // namespace kvsim::analysis
