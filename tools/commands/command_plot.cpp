// kvsim plot: one figure from results, as a drawing, its numbers, or the script that draws it.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/drawing/draw_figure.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/report/figure_tables.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/suggest.hpp"
#include "tools/commands/command.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kPlotExamples = R"(Examples:
  kvsim plot quality rows.csv -o quality.svg
  kvsim plot quality rows.csv --metric r --policy h2o --policy snapkv --width column -o r.pdf
  kvsim plot timeline kept.h5 --layer 0 --head 1 -o timeline.svg
  kvsim plot quality study --cut question -o unknown.svg
)";

struct PlotOptions {
  std::string figure, theme = "light", format, width, output;
  std::vector<std::string> files;
  analysis::FigureChoice choice;
  std::uint32_t layer = 0, head = 0;
  bool overwrite = false;
};

std::string plot_footer() {
  std::string text = std::string(kPlotExamples) + "\nFigures:\n";
  std::size_t longest = 0;
  for (const analysis::FigureKind& kind : analysis::figure_kinds())
    longest = std::max(longest, std::string_view(kind.name).size());
  for (const analysis::FigureKind& kind : analysis::figure_kinds()) {
    const std::string name = kind.name;
    text += "  " + name + std::string(longest + 2 - name.size(), ' ') + kind.summary + '\n';
  }
  return text +
         "\nFILE: the folder of a study, results of kvsim replay, evaluate, analyze or cost (csv, json, "
         "jsonl or\n"
         "HDF5), or decisions of kvsim replay.\n"
         "Drawings need gnuplot (Debian: gnuplot-nox); --format gp and csv do not.\n";
}

/// As asked, or as the output's name ends; svg otherwise.
std::string format_of(const PlotOptions& options) {
  static const std::vector<std::string> kFormats = {"svg", "png", "pdf", "gp", "csv"};
  const std::string end = std::filesystem::path(options.output).extension().string();
  const std::string wanted = !options.format.empty() ? options.format
                             : end.size() > 1        ? end.substr(1)
                                                     : "svg";
  const bool known = end.size() > 1 && std::ranges::count(kFormats, end.substr(1)) > 0;
  if (known && wanted != end.substr(1) && std::ranges::count(kFormats, wanted) > 0)
    usage_error("contradicts --format " + wanted, "-o " + options.output,
                "Without --format the figure is " + end.substr(1) + ", as the name says.");
  for (const std::string& format : kFormats)
    if (wanted == format) return format;
  usage_error("unknown format '" + wanted + "'", options.format.empty() ? options.output : "--format",
              suggestion(wanted, kFormats));
}

std::string text_of(const analysis::Figure& figure, const std::string& format, analysis::Theme theme) {
  if (format == "gp") return analysis::gnuplot_script(figure, theme);
  if (format != "csv") return analysis::drawing_of(figure, theme, analysis::parse_output(format));
  std::ostringstream csv;
  analysis::write_csv(csv, figure.data);
  return csv.str();
}

void plot(const PlotOptions& options) {
  const analysis::FigureKind& kind = analysis::figure_kind(options.figure);
  const analysis::Theme theme = analysis::parse_theme(options.theme);
  const std::string format = format_of(options);
  ResultOutput output(options.output, options.overwrite);
  std::vector<analysis::Figure> figures =
      analysis::figures_of(kind, analysis::figure_tables(kind, options.files), options.choice);
  if (figures.empty())
    usage_error(std::string("nothing to draw: ") + kind.name + " needs " + kind.needs, joined(options.files));
  analysis::Figure& figure = figures.front();
  if (!options.width.empty())
    figure.width = options.width == "page" ? analysis::Width::page : analysis::Width::column;
  output.commit(text_of(figure, format, theme));
}

}  // namespace

void add_plot_command(Command app) {
  Command command = app.add_subcommand("plot", "Draw a figure of results", plot_footer());
  const auto options = std::make_shared<PlotOptions>();
  analysis::FigureChoice& choice = options->choice;
  command.add_required("FIGURE", options->figure, "", "What to show: see the figures");
  command.add_required("FILE", options->files, "", "Results: see below");
  command.add_option("--metric", choice.metric, "",
                     "Column of the results (default: evidence_loss where "
                     "evidence is marked,\nelse attention_loss)");
  command.add_option("--cut", choice.cut, "", "One of the results' cuts (default: the first)");
  command.add_option("--budget", choice.budget, "", "One of the results' budgets (default: the middle one)");
  command.add_option("--workload", choice.workload, "", "Traces of this kind of prompt only");
  command.add_option("--trace", choice.trace, "", "This trace only, where a figure is of single rows");
  command.add_option("--policy", choice.policies, "", "Show or name these: a comma list, or several times");
  command.add_flag("--gap", choice.gap, "quality: how much worse than the best policy of each budget, alone");
  Option layer = command.add_option("--layer", options->layer, "", "Layer of a timeline (default: 0)");
  Option head = command.add_option("--head", options->head, "", "KV head of a timeline (default: 0)");
  command.add_option("--theme", options->theme, "light|dark", "Colours");
  command.add_option("--width", options->width, "", "In print: column (84 mm) | page (174 mm)",
                     one_of({"column", "page"}));
  command.add_option("--format", options->format, "",
                     "svg | png | pdf, gp (the gnuplot script) or csv (the numbers); default: as FILE ends");
  command.add_option("-o,--output", options->output, "FILE", "Default: standard output");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing output file");
  command.callback([options, layer, head] {
    if (!layer.empty()) options->choice.layer = options->layer;
    if (!head.empty()) options->choice.head = options->head;
    options->choice.policies = analysis::listed_policies(options->choice.policies);
    for (std::string& policy : options->choice.policies)
      policy = policy::respelled(policy, front_end().policies());
    plot(*options);
  });
}

}  // namespace kvsim::tools
