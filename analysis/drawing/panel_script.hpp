#pragma once
/// What a panel adds to a script: its data, what is plotted of them, and names for the legend.
#include <map>
#include <string>
#include <vector>

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

}  // namespace kvsim::analysis
