#pragma once
/// What a panel adds to a script: its data, what is plotted of them, and names for the legend.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/drawing/axis_scale.hpp"
#include "analysis/drawing/figure_layout.hpp"
#include "analysis/drawing/theme.hpp"

namespace kvsim::analysis {

struct LegendEntry {
  std::string title{};
  std::string style{};  ///< as gnuplot's `with`
};

struct PanelScript {
  std::string data{};                   ///< named blocks
  std::vector<std::string> settings{};  ///< lines before the plot
  std::vector<std::string> plots{};     ///< clauses of the plot
};

/// Which colour, marker and dash stand for a label: the same in every panel.
class Styles {
 public:
  Styles(const Figure& figure, Theme theme);
  const Palette& palette() const { return palette_; }
  std::string line(const Series& series) const;    ///< `lc rgb ... lw ... dt ...`
  std::string marker(const Series& series) const;  ///< ` pt ... ps ...`
  Rgb colour(const Series& series) const;

 private:
  const Palette& palette_;
  Theme theme_;
  std::map<std::string, int> places_;  ///< of labels that are no policy's, and of bounds
};

std::vector<LegendEntry> legend_of(const Panel& panel, const Styles& styles);

/// `name`: of the data's blocks, without $. `bar`: of a heat map.
PanelScript panel_script(const Panel& panel, const std::string& name, const Styles& styles,
                         const PanelLayout& layout, const std::optional<ColourBar>& bar);

// Pieces of gnuplot's language.

/// A string that stands for itself: between single quotes gnuplot knows nothing but the quote.
std::string gp_string(std::string_view text);
/// Lines of a comment: nothing in `text` ends it or goes on in the next line.
std::string gp_comment(std::string_view text);
/// #rrggbb.
std::string hex(Rgb colour);
/// The same between single quotes.
std::string gp_colour(Rgb colour);
/// Seven digits: finer than any page; NaN for what is not finite.
std::string gp_number(double value);
/// A place on the page as gnuplot's screen coordinate.
std::string gp_share(double points, double of);
/// ('a' 0, 'b' 1): labels are formats to gnuplot, so % is doubled.
std::string gp_ticks(const std::vector<Tick>& ticks);

}  // namespace kvsim::analysis
