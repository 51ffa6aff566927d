#include "analysis/drawing/gnuplot_script.hpp"

#include <algorithm>

#include "analysis/drawing/figure.hpp"
#include "analysis/drawing/figure_layout.hpp"
#include "analysis/drawing/panel_script.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kLongestLegend = 34;
constexpr double kCmPerPoint = 2.54 / 72;
constexpr double kCairoText = 0.75;  // gnuplot's cairo takes 96 points for an inch
constexpr int kPngScale = 4;         // dots per point: 288 to the inch

std::string terminal(const Layout& layout, const Palette& palette, Output output) {
  const auto whole = [](double value) { return std::to_string(static_cast<long>(value)); };
  const std::string size = gp_number(kTextSize), paper = " background " + gp_colour(palette.paper);
  switch (output) {
    case Output::svg:
      return "set terminal svg size " + whole(layout.width) + ',' + whole(layout.height) +
             " dynamic noenhanced font 'Helvetica Neue, Helvetica, Arial, sans-serif," + size + "'" + paper;
    case Output::png: {
      const std::string text_scale = gp_number(kPngScale * kCairoText);
      return "set terminal pngcairo size " + whole(layout.width * kPngScale) + ',' +
             whole(layout.height * kPngScale) + " noenhanced font 'sans-serif," + size + "' fontscale " +
             text_scale + " linewidth " + std::to_string(kPngScale) + " pointscale " + text_scale + paper;
    }
    case Output::pdf:
      return "set terminal pdfcairo size " + gp_number(layout.width * kCmPerPoint) + "cm," +
             gp_number(layout.height * kCmPerPoint) + "cm noenhanced font 'sans-serif," + size +
             "' fontscale " + gp_number(kCairoText) + " pointscale " + gp_number(kCairoText) + paper;
  }
  bug("not a format of drawings");
}

class Script {
 public:
  Script(const Figure& figure, Theme theme, Output output)
      : figure_(figure), palette_(palette_of(theme)), styles_(figure, theme), output_(output) {
    collect_legend();
    std::vector<std::size_t> lengths;
    for (const LegendEntry& entry : legend_) lengths.push_back(characters(entry.title));
    layout_ = layout_of(figure, lengths);
  }

  std::string text() {
    std::vector<PanelScript> panels;
    for (std::size_t i = 0; i < figure_.panels.size(); ++i)
      panels.push_back(panel_script(figure_.panels[i], "panel" + std::to_string(i + 1), styles_,
                                    layout_.panels[i], layout_.bars[i]));
    head();
    for (const PanelScript& panel : panels) out_ += panel.data;
    out_ += "\nset multiplot\n";
    common();
    for (std::size_t i = 0; i < panels.size(); ++i) panel(i, panels[i]);
    legend();
    out_ += "unset multiplot\n";
    return std::move(out_);
  }

 private:
  void line(const std::string& text) { out_ += text + '\n'; }
  std::string across(double points) const { return gp_share(points, layout_.width); }
  std::string up(double points) const { return gp_share(points, layout_.height); }
  std::string ink(Rgb colour) const { return " textcolor rgb " + gp_colour(colour); }

  void collect_legend() {
    for (const Panel& panel : figure_.panels) {
      for (LegendEntry& entry : legend_of(panel, styles_)) {
        entry.title = shortened(one_line(entry.title), kLongestLegend);
        const bool known = std::ranges::any_of(
            legend_, [&](const LegendEntry& other) { return other.title == entry.title; });
        if (!known) legend_.push_back(std::move(entry));
      }
    }
  }

  void head() {
    out_ += gp_comment(figure_.title);
    if (!figure_.reading.empty()) out_ += gp_comment(figure_.reading);
    if (!figure_.remark.empty()) out_ += gp_comment(figure_.remark);
    if (!figure_.command.empty()) out_ += gp_comment("Data: " + figure_.command);
    out_ +=
        gp_comment("Draw: gnuplot " + figure_.name + ".gp > " + figure_.name + '.' + output_name(output_));
    line("\nset encoding utf8");
    line(terminal(layout_, palette_, output_) + "\n");
  }

  /// What all panels share; then title and remark, drawn with the first of them.
  void common() {
    line("set tics nomirror out scale 0.4" + ink(palette_.soft));
    line("set grid lt 1 lc rgb " + gp_colour(palette_.grid) + " lw 0.5 dt 1");
    line("set errorbars small");
    line("unset colorbox");
    line("unset key");
    int label = 0;
    double at = layout_.height - 4 - kTitleSize / 2;
    for (const std::string& text : layout_.title) {
      line("set label " + std::to_string(++label) + ' ' + gp_string(text) + " at screen " + across(4) + ',' +
           up(at) + " font '," + gp_number(kTitleSize) + "'" + ink(palette_.ink));
      at -= 12;
    }
    at = layout_.remark_top - kTextLine / 2;
    for (const std::string& text : layout_.remark) {
      line("set label " + std::to_string(++label) + ' ' + gp_string(text) + " at screen " + across(4) + ',' +
           up(at) + ink(palette_.soft));
      at -= kTextLine - 1;
    }
  }

  void axis(const char* name, const Scale& scale, bool names, bool turned) {
    const std::string axis = name;
    line((scale.log ? "set logscale " : "unset logscale ") + axis);
    line("set " + axis + "range [" + gp_number(scale.reversed ? scale.high : scale.low) + ":" +
         gp_number(scale.reversed ? scale.low : scale.high) + "]");
    line("set " + axis + "tics " + gp_ticks(scale.ticks) + (turned ? " rotate by 90 right" : " norotate") +
         (names ? " scale 0" : ""));
  }

  /// Placed here, for gnuplot's own place depends on how it guesses widths of text.
  void axis_labels(const PanelLayout& place) {
    const Frame& frame = place.frame;
    if (!place.across_label.empty())
      line("set label " + gp_string(place.across_label) + " at screen " + across(place.across_label_middle) +
           ',' + up(place.across_label_at) + " center" + ink(palette_.ink));
    if (!place.up_label.empty())
      line("set label " + gp_string(place.up_label) + " at screen " + across(place.up_label_at) + ',' +
           up((frame.bottom + frame.top) / 2) + " center rotate by 90" + ink(palette_.ink));
  }

  /// A line across at a value worth one.
  void reference_lines(const Panel& panel) {
    line("unset arrow");
    std::optional<double> vertical, level;
    std::string said;
    bool front = false;
    if (const auto* chart = std::get_if<Chart>(&panel.content)) {
      vertical = chart->flipped ? chart->y.line : chart->x.line;
      level = chart->flipped ? chart->x.line : chart->y.line;
      said = chart->y.line_label;
    } else if (const auto* timeline = std::get_if<Timeline>(&panel.content)) {
      vertical = timeline->x.line;
      said = timeline->x.line_label;
      front = true;  // bars would hide it
    }
    const std::string style = std::string(" nohead ") + (front ? "front" : "back") + " lc rgb " +
                              gp_colour(front ? palette_.ink : palette_.soft) + " lw 0.8";
    if (vertical)
      line("set arrow from " + gp_number(*vertical) + ", graph 0 to " + gp_number(*vertical) + ", graph 1" +
           style);
    if (level)
      line("set arrow from graph 0, first " + gp_number(*level) + " to graph 1, first " + gp_number(*level) +
           style);
    if (!said.empty())
      line("set label " + gp_string(said) + " at " +
           (vertical ? "first " + gp_number(*vertical) + ", graph 0 right offset -0.4,0.6"
                     : "graph 1, first " + gp_number(*level) + " right offset -0.2,-0.5") +
           " front" + ink(palette_.soft));
  }

  void colour_bar(std::size_t i) {
    const auto& bar = layout_.bars[i];
    // Panels that share a bar draw it once.
    const bool drawn = i > 0 && layout_.bars[i - 1] && layout_.bars[i - 1]->frame.left == bar->frame.left;
    if (drawn) return line("unset colorbox");
    line("set colorbox vertical user origin screen " + across(bar->frame.left) + ',' + up(bar->frame.bottom) +
         " size screen " + across(bar->frame.width()) + ',' + up(bar->frame.height()) + " noborder");
    if (bar->unit.empty()) return;
    line("set label " + gp_string(bar->unit) + " at screen " + across(bar->label_at) + ',' +
         up(bar->label_height) + " center rotate by 90" + ink(palette_.ink));
  }

  /// A plot of its own over the whole page: gnuplot folds a key that is taller than its plot.
  void legend() {
    if (legend_.empty()) return;
    line("\n# legend");
    line("unset border; unset tics; unset title; unset label; unset arrow; unset logscale; unset colorbox");
    line(
        "set lmargin at screen 0; set rmargin at screen 1; set bmargin at screen 0; set tmargin at screen 1");
    line("set xrange [0:1]; set yrange [0:1]");
    line("set key at screen " + across(layout_.legend_left) + ',' + up(layout_.legend_top) +
         " left top Left reverse vertical maxrows " + std::to_string(layout_.legend_rows) +
         " samplen 2 spacing 1 noautotitle" + ink(palette_.ink));
    std::vector<std::string> entries{"NaN"};
    for (const LegendEntry& entry : legend_)
      entries.push_back("keyentry with " + entry.style + " title " + gp_string(entry.title));
    plot(entries);
  }

  void plot(const std::vector<std::string>& plots) {
    for (std::size_t k = 0; k < plots.size(); ++k)
      line((k == 0 ? "plot " : "     ") + plots[k] + (k + 1 < plots.size() ? ", \\" : ""));
  }

  void panel(std::size_t i, const PanelScript& script) {
    const PanelLayout& place = layout_.panels[i];
    const bool chart = std::holds_alternative<Chart>(figure_.panels[i].content);
    const bool map = layout_.bars[i].has_value();
    line("\n# panel " + std::to_string(i + 1));
    if (i > 0) line("unset label");
    line("set lmargin at screen " + across(place.frame.left) + "; set rmargin at screen " +
         across(place.frame.right));
    line("set bmargin at screen " + up(place.frame.bottom) + "; set tmargin at screen " +
         up(place.frame.top));
    line("set title " + gp_string(figure_.panels[i].title) + " offset 0,-0.6" + ink(palette_.ink));
    line(map ? "unset border" : "set border 3 lc rgb " + gp_colour(palette_.soft) + " lw 0.6");
    axis("x", place.across, place.across_names || map, place.turned);
    axis("y", place.up, place.up_names || map, false);
    axis_labels(place);
    line(std::string("set grid ") + (chart && !place.across_names ? "" : "no") + "xtics");
    reference_lines(figure_.panels[i]);
    for (const std::string& setting : script.settings) line(setting);
    if (map) colour_bar(i);
    plot(script.plots.empty() ? std::vector<std::string>{"NaN"} : script.plots);
  }

  const Figure& figure_;
  const Palette& palette_;
  Styles styles_;
  Output output_;
  std::vector<LegendEntry> legend_{};
  Layout layout_{};
  std::string out_{};
};

}  // namespace

const char* output_name(Output output) {
  return output == Output::svg ? "svg" : output == Output::png ? "png" : "pdf";
}

Output parse_output(std::string_view name) {
  for (const Output output : {Output::svg, Output::png, Output::pdf})
    if (name == output_name(output)) return output;
  usage_error("unknown format of drawings '" + std::string(name) + "'", "",
              suggestion(name, {"svg", "png", "pdf"}));
}

std::string gnuplot_script(const Figure& figure, Theme theme, Output output) {
  return Script(figure, theme, output).text();
}

}  // namespace kvsim::analysis
