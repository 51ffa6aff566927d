// Figures as scripts: what is drawn, in which order, and that text of a figure stays text.
#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/drawing/axis_scale.hpp"
#include "analysis/drawing/draw_figure.hpp"
#include "analysis/drawing/figure.hpp"
#include "analysis/drawing/gnuplot_script.hpp"
#include "analysis/drawing/panel_script.hpp"
#include "analysis/drawing/policy_style.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_gnuplot_script {

using Catch::Matchers::Contains;

namespace {

Figure figure_of(std::vector<Panel> panels) {
  Figure figure;
  figure.name = "quality-isr";
  figure.title = "ISR against budget";
  figure.reading = "Higher is better.";
  figure.command = "kvsim plot quality results.csv";
  figure.panels = std::move(panels);
  return figure;
}

Series series_of(const std::string& label, std::vector<Point> points, Weight weight = Weight::plain) {
  return {.label = label, .weight = weight, .points = std::move(points)};
}

Figure small_chart() {
  Chart chart;
  chart.x = {.label = "budget", .log = true, .percent = true};
  chart.y = {.label = "ISR"};
  chart.series = {series_of("h2o", {{0.05, 0.4, 0.3, 0.5}, {0.1, 0.6, 0.5, 0.7}, {0.5, 0.9, 0.8, 0.95}}),
                  series_of("others", {{0.05, 0.2, {}, {}}, {0.5, 0.7, {}, {}}}, Weight::faint),
                  series_of("full", {{0.05, 1, {}, {}}, {0.5, 1, {}, {}}}, Weight::bound)};
  return figure_of({{"", chart}});
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

std::vector<std::string> labels_of(const Scale& scale) {
  std::vector<std::string> out;
  for (const Tick& tick : scale.ticks) out.push_back(tick.label);
  return out;
}

}  // namespace

TEST_CASE("a chart's script tells what it is, holds its data and names every curve once") {
  const std::string script = gnuplot_script(small_chart());
  CHECK_THAT(script, Catch::StartsWith("# ISR against budget\n# Higher is better.\n"));
  CHECK_THAT(script, Contains("# Data: kvsim plot quality results.csv\n"));
  CHECK_THAT(script, Contains("# Draw: gnuplot quality-isr.gp > quality-isr.svg\n"));
  CHECK_THAT(script,
             Contains("$panel1_1 << EOD\n0.05 0.4 0.3 0.5\n0.1 0.6 0.5 0.7\n0.5 0.9 0.8 0.95\nEOD\n"));
  CHECK_THAT(script, Contains("set logscale x\n"));
  CHECK_THAT(script, Contains("set xtics ('5%%' 0.05, '10%%' 0.1, '50%%' 0.5)"));
  for (const char* name : {"title 'h2o'", "title 'others'", "title 'full'"})
    CHECK(count_of(script, name) == 1);
  CHECK(script == gnuplot_script(small_chart()));
}

TEST_CASE("bands lie below, then faint curves, bounds, and policies on top") {
  const std::string script = gnuplot_script(small_chart());
  const std::size_t band = script.find("$panel1_1 using 1:3:4 with filledcurves");
  const std::size_t faint = script.find("$panel1_2 using 1:2 with lines");
  const std::size_t bound = script.find("$panel1_3 using 1:2 with lines");
  const std::size_t plain = script.find("$panel1_1 using 1:2 with linespoints");
  REQUIRE(plain != std::string::npos);
  CHECK(band < faint);
  CHECK(faint < bound);
  CHECK(bound < plain);
}

TEST_CASE("one point is a point with its interval, not a line") {
  Chart chart;
  chart.series = {series_of("h2o", {{0.1, 0.6, 0.5, 0.7}})};
  const std::string script = gnuplot_script(figure_of({{"", chart}}));
  CHECK_THAT(script, Contains("using 1:2:3:4 with yerrorbars"));
  CHECK_THAT(script, Contains("using 1:2 with points"));
  CHECK_THAT(script, !Contains("with linespoints"));
}

TEST_CASE("a flipped chart runs down the page and its intervals to the side") {
  Chart chart;
  chart.joined = false;
  chart.flipped = true;
  chart.x.categories = {"first", "second"};
  chart.y.line = 0.0;
  chart.series = {series_of("difference", {{0, 0.1, -0.1, 0.2}, {1, 0.3, 0.2, 0.4}})};
  const std::string script = gnuplot_script(figure_of({{"", chart}}));
  CHECK_THAT(script, Contains("using 2:1:3:4 with xerrorbars"));
  CHECK_THAT(script, Contains("set yrange [1.5:-0.5]\nset ytics ('first' 0, 'second' 1)"));
  CHECK_THAT(script, Contains("set arrow from 0, graph 0 to 0, graph 1 nohead"));
}

TEST_CASE("heat maps of one unit share their colours; a missing value is hatched and named") {
  HeatMap first, second;
  first.unit = second.unit = "attention loss";
  first.rows = {{0.1, 0.2}, {std::nullopt, 0.4}};
  second.rows = {{0.5, 0.9}};
  const std::string script = gnuplot_script(figure_of({{"a", first}, {"b", second}}));
  CHECK(count_of(script, "set cbrange [0.1:0.9]") == 2);
  CHECK(count_of(script, "\nset colorbox") == 1);
  CHECK_THAT(script, Contains("$panel1_none << EOD\n0 1\nEOD\n"));
  CHECK(count_of(script, "title 'no value'") == 1);
  CHECK_THAT(gnuplot_script(figure_of({{"b", second}})), !Contains("no value"));

  second.unit = "ISR";  // another quantity has colours of its own
  const std::string apart = gnuplot_script(figure_of({{"a", first}, {"b", second}}));
  CHECK_THAT(apart, Contains("set cbrange [0.1:0.4]"));
  CHECK_THAT(apart, Contains("set cbrange [0.5:0.9]"));
  CHECK(count_of(apart, "\nset colorbox") == 2);
}

TEST_CASE("colours around zero reach as far to both sides") {
  HeatMap map;
  map.diverging = true;
  map.rows = {{-0.1, 0.4}};
  CHECK_THAT(gnuplot_script(figure_of({{"", map}})), Contains("set cbrange [-0.4:0.4]"));
}

TEST_CASE("numbers stand in cells in ink that reads on them") {
  HeatMap map;
  map.numbers = true;
  map.rows = {{0.0, 0.5, 1.0}};  // viridis: dark violet, green-blue, yellow
  const std::string script = gnuplot_script(figure_of({{"", map}}));
  CHECK_THAT(script, Contains("_light << EOD\n0 0 0.00\n"));
  CHECK_THAT(script, Contains("2 0 1.00\nEOD"));
  map.rows.assign(60, {0.0});  // rows too low for text
  CHECK_THAT(gnuplot_script(figure_of({{"", map}})), !Contains("with labels"));
}

TEST_CASE("text of a figure is never a command") {
  const std::string hostile = "a'; system('touch x') \\\n`touch y` @z $HOME\t\\";
  CHECK(gp_string(hostile) == "'a''; system(''touch x'') \\ `touch y` @z $HOME \\'");
  CHECK(gp_comment("ends in \\") == "# ends in \\ \n");
  CHECK(gp_comment("two\nlines") == "# two lines\n");
  CHECK(gp_ticks({{0, "50% 'x'"}}) == "('50%% ''x''' 0)");
  Chart chart;
  chart.x.categories = {hostile};
  chart.x.label = chart.y.label = hostile;
  chart.series = {series_of(hostile, {{0, 1, {}, {}}})};
  Figure figure = figure_of({{hostile, chart}});
  figure.title = figure.remark = figure.reading = figure.command = hostile;
  std::istringstream lines(gnuplot_script(figure));
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    if (line.find("touch") == std::string::npos) continue;
    // Inside single quotes, which the text cannot leave, or in a comment.
    const std::size_t at = line.find("touch");
    const auto quotes = std::count(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(at), '\'');
    CHECK((line[0] == '#' || quotes % 2 == 1));
    if (line[0] == '#') CHECK(line.back() != '\\');
  }
}

TEST_CASE("names are one line of UTF-8, cut in the middle, wrapped between words") {
  CHECK(one_line("a\nb\tc") == "a b c");
  CHECK(one_line("a\xff"
                 "b") ==
        "a\xef\xbf\xbd"
        "b");
  CHECK(one_line("\xef\xbf\xbe") == "\xef\xbf\xbd");
  CHECK(characters("größe") == 5);
  CHECK(shortened("abcdefghij", 10) == "abcdefghij");
  CHECK(shortened("abcdefghijk", 10) == "abcde…hijk");
  CHECK(shortened("größenordnung", 6) == "grö…ng");
  CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrapped("longword x", 3) == std::vector<std::string>{"longword", "x"});
}

TEST_CASE("ticks are round numbers inside the range") {
  CHECK(labels_of(number_scale({}, {0, 1}, 5, false)) ==
        std::vector<std::string>{"0", "0.2", "0.4", "0.6", "0.8", "1"});
  CHECK(labels_of(number_scale({.percent = true}, {0.05, 0.75}, 4, true)) ==
        std::vector<std::string>{"0%", "20%", "40%", "60%"});
  // Powers of ten as plain numbers; where few values are shown they are the ticks.
  CHECK(labels_of(number_scale({.log = true}, {0.01, 0.03, 0.07, 0.2, 0.9, 11, 70, 800, 1000}, 6, false)) ==
        std::vector<std::string>{"0.01", "0.1", "1", "10", "100", "1000"});
  // Room for two of three powers, of which every other would be 10 and the 1000 that is not reached.
  CHECK(labels_of(number_scale({.log = true}, {2, 3, 5, 70, 900}, 2, false)) ==
        std::vector<std::string>{"10", "100"});
  CHECK(labels_of(number_scale({.log = true}, {32, 64, 256}, 6, false)) ==
        std::vector<std::string>{"32", "64", "256"});
}

TEST_CASE("a range is never empty, and a log axis never meets zero") {
  const Scale point = number_scale({}, {3}, 5, true);
  CHECK(point.low < 3);
  CHECK(point.high > 3);
  const Scale none = number_scale({}, {}, 5, true);
  CHECK(none.low < none.high);
  CHECK_FALSE(number_scale({.log = true}, {0, 1}, 5, true).log);
  const Scale lone = number_scale({.log = true}, {0.1}, 5, true);
  CHECK(lone.low > 0);
  CHECK(lone.high > 0.1);
  // Near to zero starts at zero; far from it does not; a curve at zero keeps off the axis.
  CHECK(number_scale({}, {0.1, 1}, 5, true).low == 0);
  CHECK(number_scale({}, {0.9, 1}, 5, true).low > 0.8);
  CHECK(number_scale({}, {0, 1}, 5, true).low < 0);
}

TEST_CASE("a policy's colour and mark follow from its name, and tell the known ones apart without colour") {
  std::vector<std::pair<std::string, PolicyStyle>> all;
  for (const kvsim::policy::PolicySpec& spec : kvsim::policy::builtin().policies())
    if (spec.kind() == kvsim::policy::Kind::eviction) {
      const std::string& name = spec.name;
      const PolicyStyle style = policy_style(name);
      CAPTURE(name);
      CHECK_FALSE(style.open);
      for (const Theme theme : {Theme::light, Theme::dark}) {
        CHECK(contrast(style.colour(theme), palette_of(theme).paper) >= 3);
        for (const auto& [other, known] : all) {
          CAPTURE(other);
          const bool apart = known.shape != style.shape || known.dash != style.dash ||
                             contrast(known.colour(theme), style.colour(theme)) >= 1.3;
          CHECK(apart);
        }
      }
      all.emplace_back(name, style);
    }
  CHECK(all.size() >= 33);
  // More in the label keeps the hue's family and opens the mark; full+X looks like X with more in its label.
  for (const char* more : {"keydiff+adakv", "keydiff(sinks=4)", "keydiff.kvpress"}) {
    CHECK(policy_style(more).open);
    CHECK(policy_style(more).colours != policy_style("tova").colours);
  }
  CHECK(policy_style("full+quest").colours == policy_style("quest").colours);
  // Names that nobody knows: the same on every machine.
  CHECK(policy_style("my own").colours == policy_style("my own").colours);
  CHECK(policy_style("my own").shape < kShapes);
}

TEST_CASE("every colour of a theme stands out from its paper") {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    const Palette& palette = palette_of(theme);
    for (const Rgb colour : palette.series) {
      CAPTURE(theme_name(theme), colour);
      CHECK(contrast(colour, palette.paper) >= 3);
    }
    CHECK(contrast(palette.ink, palette.paper) >= 7);
    CHECK(contrast(palette.soft, palette.paper) >= 4.5);
  }
  CHECK(contrast(0x000000, 0xffffff) == Approx(21));
  CHECK(blend({0x000000, 0xff0000, 0xffffff}, 0.5) == 0xff0000);
  CHECK(blend({0x000000, 0xff0000}, 0.5) == 0x800000);
}

TEST_CASE("an svg for pages says what it shows and has names of its own") {
  Figure figure = small_chart();
  figure.title = "a < b & c";
  const std::string svg =
      "<svg \n viewBox=\"0 0 1 1\">\n<title>Gnuplot</title>\n<desc>Produced by GNUPLOT 5.4</desc>\n"
      "<g id=\"gnuplot_plot_1\" ><title>gnuplot_plot_1</title><use xlink:href='#gpPt6'/>"
      "<text>an id='x' in text</text></g></svg>";
  CHECK(page_svg(svg, figure, Theme::dark) ==
        "<svg role=\"img\" \n viewBox=\"0 0 1 1\">\n<title>a &lt; b &amp; c</title>\n"
        "<desc>Higher is better. kvsim plot quality results.csv</desc>\n"
        "<g id=\"quality-isr_dark_gnuplot_plot_1\" ><use xlink:href='#quality-isr_dark_gpPt6'/>"
        "<text>an id='x' in text</text></g></svg>");
}

TEST_CASE("unknown themes and formats name the known ones") {
  CHECK_THROWS_WITH(parse_theme("drak"), Contains("dark"));
  CHECK_THROWS_WITH(parse_output("svgz"), Contains("svg"));
  CHECK_THROWS_AS(gnuplot_script(figure_of({})), kvsim::Error);
}

TEST_CASE("text is of one size on paper, on a screen and in a picture of four dots per point") {
  // 84 mm are 238 points; gnuplot's cairo makes 7.5 points of 7.5 x 0.75.
  Figure figure = small_chart();
  figure.width = Width::column;
  CHECK_THAT(gnuplot_script(figure), Contains("set terminal svg size 238,"));
  CHECK_THAT(gnuplot_script(figure, Theme::light, Output::pdf),
             Contains("set terminal pdfcairo size 8.396111cm,") && Contains(",7.5' fontscale 0.75 "));
  CHECK_THAT(gnuplot_script(figure, Theme::dark, Output::png),
             Contains("set terminal pngcairo size 952,") && Contains(",7.5' fontscale 3 "));
}

}  // namespace kvsim::analysis::test_gnuplot_script
