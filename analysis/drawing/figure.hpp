#pragma once
/// A figure as data: what is shown, not how it is drawn. Figures are made of tables, and drawn as a gnuplot
/// script in any theme and format.
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {

struct Axis {
  std::string label{};  ///< with its unit
  bool log = false;
  std::optional<double> low{}, high{};    ///< none: as the data has it
  std::vector<std::string> categories{};  ///< names of 0, 1, 2, ...; empty: a number line
  bool percent = false;                   ///< values are shares, shown as percent
  std::optional<double> line{};           ///< a value worth a line across the panel, say zero
  std::string line_label{};               ///< what that line is; empty: the figure's words say it
  bool at_values = false;                 ///< ticks of a log axis stand at values of the data
  std::vector<double> ticks{};  ///< where they stand, as far as there is room; of a linear axis at least two
  bool whole = false;           ///< counts or indices: no tick between whole numbers
};

struct Point {
  double x = 0, y = 0;
  std::optional<double> low{}, high{};  ///< interval of y
};

/// How much a series asks for attention.
enum class Weight {
  plain,  ///< a colour of its own and a name in the legend
  bound,  ///< what there is to reach: the full cache, an oracle; neutral, dashed, named
  faint,  ///< one of the many others: thin and grey, one name for all of them
};

struct Series {
  std::string label{};
  Weight weight = Weight::plain;
  std::vector<Point> points{};  ///< ascending x where lines join them
  int colour = -1;              ///< equal numbers are equal colours in a figure; negative: one that is free
  std::string policy{};  ///< whose colour and mark these are, everywhere (policy_style.hpp); empty: none's
  std::string group{};   ///< what the legend says instead of label; once for all that say the same
  bool dots = false;     ///< no line through these points, even in a chart of curves
};

/// Curves with interval bands, or points with interval bars.
struct Chart {
  Axis x{}, y{};
  bool joined = true;    ///< lines through the points of a series
  bool flipped = false;  ///< x runs down the page and y to the right: room for the names of many categories
  std::vector<Series> series{};
};

/// Rows are shown from the top down. Missing values are hatched, and the legend says so. Cells are numbered
/// 0, 1, 2, ... along an axis, or spread evenly with their first and last centre at its low and high.
struct HeatMap {
  Axis x{}, y{};
  std::string unit{};                                      ///< what colours mean
  std::vector<std::vector<std::optional<double>>> rows{};  ///< [y][x]
  bool diverging = false;                                  ///< around zero: two hues
  bool log = false;
  bool numbers = false;  ///< print each value in its cell, while there is room
  bool percent = false;  ///< values are shares, shown as percent
};

/// Bars from begin to end on lines of their own: what was held when, or the parts of a total end to end.
struct Timeline {
  Axis x{}, y{};
  struct Bar {
    double y = 0, begin = 0, end = 0;
    int colour = 0;
    double height = 1;
  };
  std::vector<Bar> bars{};
  std::vector<std::string> colours{};  ///< what each number of Bar::colour means
};

struct Panel {
  std::string title{};
  std::variant<Chart, HeatMap, Timeline> content{};
  std::string key{};  ///< what the table of the numbers calls it, where that is not the title
};

/// How wide a figure is in print.
enum class Width {
  column,  ///< 84 mm, one column of a paper
  page,    ///< 174 mm, both
};

struct Figure {
  std::string name{};     ///< of its files: lower case, - between words
  std::string title{};    ///< what is shown
  std::string reading{};  ///< one sentence: how to read it
  std::string remark{};   ///< why there is no line, what was left out; may be empty
  std::string command{};  ///< what makes the data again
  Width width = Width::page;
  std::size_t columns = 0;  ///< panels beside each other where it is a page wide; 0: as many as fit
  std::vector<Panel> panels{};
  Records data{};  ///< the numbers shown, and their intervals, as a table
};

// Text of figures: names come from files and may hold anything.

/// One line of well-formed UTF-8 that XML may hold: control characters become spaces, broken ones U+FFFD.
std::string one_line(std::string_view text);

/// The first letter in upper case, if it is one of a to z.
std::string capitalised(std::string text);

/// At most `limit` characters: the middle gives way to "…", for names differ at their ends.
std::string shortened(const std::string& text, std::size_t limit);

}  // namespace kvsim::analysis
