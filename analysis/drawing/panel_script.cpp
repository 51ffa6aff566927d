#include "analysis/drawing/panel_script.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>

#include "analysis/drawing/figure.hpp"
#include "analysis/drawing/policy_style.hpp"

namespace kvsim::analysis {
namespace {

/// Filled and open circle, square, triangle, diamond: neighbours differ in shape.
constexpr std::array<int, 8> kMarkers = {7, 5, 9, 13, 6, 4, 8, 12};
/// Of PolicyStyle::dash.
constexpr std::array<const char*, kDashes> kPolicyDashes = {"1", "(7,2)", "(2,2)"};
/// Of PolicyStyle::shape, filled; the open one is the number before.
constexpr std::array<int, kShapes> kPolicyMarkers = {7, 5, 9, 11, 13, 15};
constexpr std::array<const char*, 4> kBoundDashes = {"(6,3)", "(2,2)", "(8,2,2,2)", "(12,3)"};
/// So many cells are drawn as one picture; fewer as shapes, sharp at any size.
constexpr std::size_t kMostShapes = 5000;
constexpr std::size_t kMostMarkers = 10;
constexpr double kNumberRoom = 8.5;  // height of a cell that takes a number

std::string row_of(const std::vector<double>& values) {
  std::string out;
  for (const double value : values) out += (out.empty() ? "" : " ") + gp_number(value);
  return out + '\n';
}

std::string block(const std::string& name, const std::string& rows) {
  return "$" + name + " << EOD\n" + rows + "EOD\n";
}

bool alone(const Chart& chart, const Series& series) {
  return !chart.joined || series.dots || series.points.size() == 1;
}

bool has_interval(const Series& series) {
  return std::ranges::any_of(series.points, [](const Point& point) { return point.low && point.high; });
}

std::string series_style(const Chart& chart, const Series& series, const Styles& styles) {
  if (alone(chart, series))
    return "points lc rgb " + gp_colour(styles.colour(series)) + styles.marker(series);
  if (series.weight != Weight::plain) return "lines " + styles.line(series);
  // Many points would hide the line under their markers.
  const std::size_t every = (series.points.size() + kMostMarkers - 1) / kMostMarkers;
  return "linespoints " + styles.line(series) + styles.marker(series) +
         (every > 1 ? " pi " + std::to_string(every) : "");
}

/// x y low high; a point without an interval is one on itself for bars, and a gap for bands.
std::string series_rows(const Series& series, bool bars) {
  std::string rows;
  for (const Point& point : series.points) {
    const double none = bars ? point.y : std::nan("");
    rows += row_of({point.x, point.y, point.low.value_or(none), point.high.value_or(none)});
  }
  return rows;
}

/// Bands lie lowest, then the many in grey, then bounds, then what asks for attention.
int depth(const Series& series) {
  return series.weight == Weight::faint ? 1 : series.weight == Weight::bound ? 2 : 3;
}

/// More bands than this hide each other: bars side by side stand for them.
constexpr std::ptrdiff_t kMostBands = 2;
/// How far apart they stand, as a share of the axis.
constexpr double kBarsApart = 0.008;

/// The column of x, moved by so many places.
std::string moved(const Scale& across, double places) {
  if (places == 0) return "1";
  const double share = places * kBarsApart;
  return across.log ? "($1*" + gp_number(std::pow(across.high / across.low, share)) + ")"
                    : "($1+" + gp_number((across.high - across.low) * share) + ")";
}

PanelScript chart_script(const Chart& chart, const std::string& name, const Styles& styles,
                         const Scale& across) {
  PanelScript out;
  std::vector<std::pair<int, std::string>> plots;
  const auto banded = [&](const Series& series) {
    return series.weight == Weight::plain && !chart.flipped && !alone(chart, series) && has_interval(series);
  };
  const auto bands = std::ranges::count_if(chart.series, banded);
  double place = -static_cast<double>(bands - 1) / 2;  // of the next one beside the others
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    if (series.points.empty()) continue;
    const std::string data = name + "_" + std::to_string(i + 1);
    const bool single = alone(chart, series), beside = bands > kMostBands && banded(series);
    const bool bars = single || beside, interval = has_interval(series);
    const std::string x = beside ? moved(across, place++) : "1";
    out.data += gp_comment(series.label + ": x y low high") + block(data, series_rows(series, bars));
    const std::string colour = gp_colour(styles.colour(series));
    if (interval && beside) {
      plots.emplace_back(
          2, "$" + data + " using " + x + ":3:(0):($4-$3) with vectors nohead lw 0.7 lc rgb " + colour);
    } else if (interval && bars) {
      plots.emplace_back(depth(series),
                         "$" + data + " using " +
                             (chart.flipped ? "2:1:3:4 with xerrorbars" : "1:2:3:4 with yerrorbars") +
                             " pt -1 lw 1 lc rgb " + colour);
    } else if (banded(series)) {
      plots.emplace_back(0, "$" + data + " using 1:3:4 with filledcurves fc rgb " + colour +
                                " fs transparent solid 0.15 noborder");
    }
    plots.emplace_back(depth(series), "$" + data + " using " + (chart.flipped ? "2:1" : x + ":2") + " with " +
                                          series_style(chart, series, styles));
  }
  std::ranges::stable_sort(plots, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& plot : plots) out.plots.push_back(std::move(plot.second));
  return out;
}

std::string palette_line(const std::vector<Rgb>& stops) {
  std::string out = "set palette defined (";
  for (std::size_t i = 0; i < stops.size(); ++i)
    out += (i > 0 ? ", " : "") + std::to_string(i) + ' ' + gp_colour(stops[i]);
  return out + ')';
}

/// Where a value lies between the ends of its scale.
double share_of(const Scale& scale, double value) {
  if (!scale.log) return (value - scale.low) / (scale.high - scale.low);
  return value <= 0 ? 0 : std::log(value / scale.low) / std::log(scale.high / scale.low);
}

std::string cell_text(double value, const Scale& scale, bool percent) {
  const double shown = percent ? value * 100 : value;
  const double reach = std::max(std::fabs(scale.low), std::fabs(scale.high)) * (percent ? 100 : 1);
  const int decimals =
      reach >= 100 || reach == 0 ? 0 : std::clamp(2 - static_cast<int>(std::ceil(std::log10(reach))), 0, 4);
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, shown == 0 ? 0.0 : shown);
  return text;
}

bool has_missing(const HeatMap& map) {
  for (const auto& row : map.rows)
    if (std::ranges::any_of(row, [](const auto& v) { return !v || !std::isfinite(*v); })) return true;
  return false;
}

/// The ink that reads on a cell's colour.
Rgb ink_on(Rgb cell) {
  const Rgb black = 0x101418, white = 0xffffff;
  return contrast(black, cell) >= contrast(white, cell) ? black : white;
}

std::string missing_style(const Styles& styles) {
  return "boxxyerror lc rgb " + gp_colour(styles.palette().soft) + " lw 0.4 fs pattern 4 noborder";
}

struct Cells {
  std::string values, missing, dark_numbers, light_numbers;
  std::size_t count = 0, longest = 0;
};

Cells cells_of(const HeatMap& map, const std::vector<Rgb>& stops, const ColourBar& bar) {
  Cells out;
  for (std::size_t y = 0; y < map.rows.size(); ++y) {
    for (std::size_t x = 0; x < map.rows[y].size(); ++x) {
      const double across = cell_centre(map.x, x, map.rows[y].size());
      const double up = cell_centre(map.y, y, map.rows.size());
      const auto& value = map.rows[y][x];
      ++out.count;
      if (!value || !std::isfinite(*value)) {
        out.missing += row_of({across, up});
        out.values += row_of({across, up, std::nan("")});  // a picture is made of whole rows
        continue;
      }
      out.values += row_of({across, up, *value});
      const std::string text = cell_text(*value, bar.scale, map.percent);
      out.longest = std::max(out.longest, text.size());
      const bool dark = ink_on(blend(stops, share_of(bar.scale, *value))) != 0xffffff;
      (dark ? out.dark_numbers : out.light_numbers) +=
          gp_number(across) + ' ' + gp_number(up) + ' ' + text + '\n';
    }
  }
  return out;
}

PanelScript map_script(const HeatMap& map, const std::string& name, const Styles& styles,
                       const PanelLayout& layout, const ColourBar& bar) {
  PanelScript out;
  const std::vector<Rgb>& stops = bar.diverging ? styles.palette().diverging : styles.palette().sequential;
  const Cells cells = cells_of(map, stops, bar);
  const std::size_t columns = map.rows.empty() ? 1 : map.rows.front().size();
  const double width = cell_width(map.x, columns), height = cell_width(map.y, map.rows.size());
  const double seen_width = layout.frame.width() / static_cast<double>(std::max<std::size_t>(columns, 1));
  const double seen_height =
      layout.frame.height() / static_cast<double>(std::max<std::size_t>(map.rows.size(), 1));
  out.settings = {palette_line(stops),
                  "set cbrange [" + gp_number(bar.scale.low) + ":" + gp_number(bar.scale.high) + "]",
                  std::string(bar.scale.log ? "set" : "unset") + " logscale cb",
                  "set cbtics " + gp_ticks(bar.scale.ticks) + " scale 0.4"};
  // A hair of paper between cells that are large enough; none between small ones.
  const double gap = std::min(seen_width, seen_height) >= 6 ? 0.5 : 0;
  const std::string half_width = gp_number(width / 2 * (1 - gap / seen_width));
  const std::string half_height = gp_number(height / 2 * (1 - gap / seen_height));
  const std::string box = "using 1:2:($1-" + half_width + "):($1+" + half_width + "):($2-" + half_height +
                          "):($2+" + half_height + ")";
  if (!cells.values.empty()) {
    out.data += gp_comment("cells: x y value") + block(name, cells.values);
    out.plots.push_back("$" + name + " " +
                        (cells.count > kMostShapes
                             ? "using 1:2:3 with image"
                             : box + ":3 with boxxyerror fc palette fs solid noborder"));
  }
  if (!cells.missing.empty()) {
    out.data += gp_comment("cells without a value: x y") + block(name + "_none", cells.missing);
    out.plots.push_back("$" + name + "_none " + box + " with " + missing_style(styles));
  }
  const double text_width = static_cast<double>(cells.longest) * kTextSize * 0.56 + 2;
  if (!map.numbers || seen_height < kNumberRoom || seen_width < text_width) return out;
  for (const bool dark : {true, false}) {
    const std::string& numbers = dark ? cells.dark_numbers : cells.light_numbers;
    if (numbers.empty()) continue;
    const std::string data = name + (dark ? "_dark" : "_light");
    out.data += gp_comment("numbers in cells: x y text") + block(data, numbers);
    out.plots.push_back("$" + data + " using 1:2:(stringcolumn(3)) with labels textcolor rgb " +
                        (dark ? "'#101418'" : "'#ffffff'"));
  }
  return out;
}

std::string bar_style(int colour, const Styles& styles) {
  const auto& colours = styles.palette().series;
  return "boxxyerror fc rgb " + gp_colour(colours[static_cast<std::size_t>(colour) % colours.size()]) +
         " fs solid noborder";
}

PanelScript timeline_script(const Timeline& timeline, const std::string& name, const Styles& styles) {
  PanelScript out;
  // Bars of named lines stand apart, those of a number line touch.
  const double part = timeline.y.categories.empty() ? 0.5 : 0.36;
  for (std::size_t colour = 0; colour < timeline.colours.size(); ++colour) {
    std::string rows;
    for (const Timeline::Bar& bar : timeline.bars)
      if (bar.colour == static_cast<int>(colour))
        rows += row_of({bar.begin, bar.end, bar.y - part * bar.height, bar.y + part * bar.height});
    if (rows.empty()) continue;
    const std::string data = name + "_" + std::to_string(colour + 1);
    out.data += gp_comment(timeline.colours[colour] + ": begin end bottom top") + block(data, rows);
    out.plots.push_back("$" + data + " using 1:3:1:2:3:4 with " +
                        bar_style(static_cast<int>(colour), styles));
  }
  return out;
}

const std::string& name_of(const Series& series) {
  return series.group.empty() ? series.label : series.group;
}

/// The styles' key: labels of bounds may equal those of policies.
std::string place_key(const Series& series) {
  return (series.weight == Weight::bound ? "b" : "p") + series.label;
}

}  // namespace

Styles::Styles(const Figure& figure, Theme theme) : palette_(palette_of(theme)), theme_(theme) {
  std::vector<const Series*> coloured;
  for (const Panel& panel : figure.panels) {
    const auto* chart = std::get_if<Chart>(&panel.content);
    if (chart == nullptr) continue;
    for (const Series& series : chart->series)
      if (series.weight != Weight::faint) coloured.push_back(&series);
  }
  std::set<int> taken;
  for (const Series* series : coloured) {
    if (series->weight != Weight::plain || series->colour < 0 || !series->policy.empty()) continue;
    places_[place_key(*series)] = series->colour;
    taken.insert(series->colour);
  }
  int free = 0, bounds = 0;
  for (const Series* series : coloured) {
    const bool bound = series->weight == Weight::bound;
    if (places_.count(place_key(*series)) > 0 || (!bound && !series->policy.empty())) continue;
    while (!bound && taken.count(free) > 0) ++free;
    places_[place_key(*series)] = bound ? bounds++ : free++;
  }
}

Rgb Styles::colour(const Series& series) const {
  if (series.weight == Weight::faint) return palette_.faint;
  if (series.weight == Weight::bound) return palette_.ink;
  if (!series.policy.empty()) return policy_style(series.policy).colour(theme_);
  return palette_.series[static_cast<std::size_t>(places_.at(place_key(series))) % palette_.series.size()];
}

std::string Styles::line(const Series& series) const {
  const std::string colour_text = "lc rgb " + gp_colour(colour(series));
  if (series.weight == Weight::faint) return colour_text + " lw 0.6 dt 1";
  if (series.weight == Weight::plain && !series.policy.empty())
    return colour_text + " lw 1.2 dt " + kPolicyDashes[policy_style(series.policy).dash];
  const auto place = static_cast<std::size_t>(places_.at(place_key(series)));
  if (series.weight == Weight::bound)
    return colour_text + " lw 1 dt " + kBoundDashes[place % kBoundDashes.size()];
  // Beyond four, dashes tell curves apart too.
  return colour_text + " lw 1.2 dt " + (place % kMarkers.size() < 4 ? "1" : "(7,2)");
}

std::string Styles::marker(const Series& series) const {
  if (series.weight == Weight::faint) return " pt 7 ps 0.25";
  if (series.weight == Weight::bound) return " pt 2 ps 0.5";
  if (!series.policy.empty()) {
    const PolicyStyle style = policy_style(series.policy);
    return " pt " + std::to_string(kPolicyMarkers[style.shape] - (style.open ? 1 : 0)) + " ps 0.5";
  }
  const auto place = static_cast<std::size_t>(places_.at(place_key(series)));
  // Where colours begin again, markers go on.
  return " pt " + std::to_string(kMarkers[(place + place / kMarkers.size() * 3) % kMarkers.size()]) +
         " ps 0.5";
}

std::vector<LegendEntry> legend_of(const Panel& panel, const Styles& styles) {
  std::vector<LegendEntry> legend;
  if (const auto* chart = std::get_if<Chart>(&panel.content)) {
    for (const Series& series : chart->series)
      if (!name_of(series).empty() && !series.points.empty())
        legend.push_back({name_of(series), series_style(*chart, series, styles)});
  } else if (const auto* map = std::get_if<HeatMap>(&panel.content)) {
    if (has_missing(*map)) legend.push_back({"no value", missing_style(styles)});
  } else {
    const auto& timeline = std::get<Timeline>(panel.content);
    for (std::size_t i = 0; i < timeline.colours.size(); ++i)
      legend.push_back({timeline.colours[i], bar_style(static_cast<int>(i), styles)});
  }
  return legend;
}

PanelScript panel_script(const Panel& panel, const std::string& name, const Styles& styles,
                         const PanelLayout& layout, const std::optional<ColourBar>& bar) {
  if (const auto* chart = std::get_if<Chart>(&panel.content))
    return chart_script(*chart, name, styles, layout.across);
  if (const auto* map = std::get_if<HeatMap>(&panel.content))
    return map_script(*map, name, styles, layout, *bar);
  return timeline_script(std::get<Timeline>(panel.content), name, styles);
}

std::string gp_string(std::string_view text) {
  std::string out = "'";
  for (const char c : one_line(text)) {
    if (c == '\'') out += '\'';
    out += c;
  }
  return out + '\'';
}

std::string gp_comment(std::string_view text) {
  std::string out = "# " + one_line(text);
  // A backslash at the end would draw the next line into the comment.
  if (out.back() == '\\') out += ' ';
  return out + '\n';
}

std::string hex(Rgb colour) {
  char text[8];
  std::snprintf(text, sizeof text, "#%06x", static_cast<unsigned>(colour & 0xffffff));
  return text;
}

std::string gp_colour(Rgb colour) {
  return '\'' + hex(colour) + '\'';
}

std::string gp_number(double value) {
  if (!std::isfinite(value)) return "NaN";
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 7).ptr};
}

std::string gp_share(double points, double of) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, points / of, std::chars_format::fixed, 4).ptr};
}

std::string gp_ticks(const std::vector<Tick>& ticks) {
  std::string out = "(";
  for (const Tick& tick : ticks) {
    std::string label;
    for (const char c : tick.label) label += c == '%' ? "%%" : std::string(1, c);
    out += (out.size() > 1 ? ", " : "") + gp_string(label) + ' ' + gp_number(tick.at);
  }
  return out + ')';
}

}  // namespace kvsim::analysis
