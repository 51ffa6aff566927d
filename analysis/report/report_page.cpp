#include "analysis/report/report_page.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "analysis/cost/price_table.hpp"
#include "analysis/drawing/draw_figure.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/report/html.hpp"
#include "analysis/report/live_data.hpp"
#include "analysis/report/reported_study.hpp"
#include "analysis/report/winners.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/version.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostRows = 100;  ///< of a table of an analysis; the rest is in its file

bool is_statistic(const std::string& table) {
  return table == "means" || table == "differences" || table == "ranks" || table == "skipped" ||
         table == kAnswersTable || table == kPriceTable || table == kWinnersTable;
}

/// A file's name as a part of an address.
std::string url_escaped(const std::string& name) {
  std::string out;
  for (const char each : name) {
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(each));
    const bool plain = std::isalnum(static_cast<unsigned char>(each)) || std::strchr("-._~", each) != nullptr;
    out += plain ? std::string(1, each) : code;
  }
  return out;
}

class Page {
 public:
  explicit Page(const ReportContent& content)
      : content_(content), study_(content.study), prices_(content.study.table(kPriceTable)) {
    const Records& means = study_.table("means");
    for (const std::string& cut : cuts_of(study_.results.rows.empty() ? means : study_.results))
      cuts_.emplace_back(cut, means, study_.table("differences"), study_.table("ranks"), study_.results,
                         study_.table(kAnswersTable));
  }

  std::string make() && {
    const PageFrame frame{study_.title,
                          study_.table(kAnswersTable).rows.empty()
                              ? "What KV cache policies would have lost on recorded runs, by kvsim."
                              : "What a model answers through the caches of KV cache policies, by kvsim.",
                          study_.incomplete.empty() ? "" : "This study is not complete: " + study_.incomplete,
                          live_data(study_, cuts_, prices_, content_.figures)};
    return framed_page(frame, [this](Html& html) {
      html_ = &html;
      first_screen();
      limits();
      best_policies();
      views();
      figures();
      analyses();
      studied();
      method();
    });
  }

 private:
  Html::Element asked(const std::string& id, const std::string& question) {
    return analysis::asked(*html_, id, question);
  }
  Html::Element folded(const std::string& summary) { return analysis::folded(*html_, summary); }
  void paragraph(const std::string& text) { analysis::paragraph(*html_, text); }

  void list_findings(const Findings& all, const std::string& kind) {
    const Html::Element list = html_->element("ol", {{"class", kind}});
    for (const Finding& finding : all) {
      html_->new_line();
      const Html::Element item = html_->element("li");
      paragraph(finding.text);
      if (finding.details.empty()) continue;
      const Html::Element details = folded("The numbers");
      const Html::Element lines = html_->element("ul");
      for (const std::string& detail : finding.details) {
        const Html::Element line = html_->element("li");
        html_->prose(detail);
      }
    }
  }

  /// A verdict, one chart and one table; the script draws them, and answers what is chosen.
  void first_screen() {
    const Html::Element opened = html_->element("section", {{"id", "first"}});
    html_->leaf("p", "", {{"id", "verdict"}, {"role", "status"}});
    html_->empty_element("div", {{"id", "controls"}});
    html_->empty_element("div", {{"id", "chart"}, {"class", "plot"}});
    html_->empty_element("div", {{"id", "ranking"},
                                 {"class", "scroll"},
                                 {"tabindex", "0"},
                                 {"role", "region"},
                                 {"aria-label", "Policies at the chosen budget"}});
    const Html::Element without = html_->element("noscript");
    html_->leaf("p",
                "The chart and the tables of this page are drawn by its script. The numbers stand in tables/ "
                "and figures/ beside it.");
  }

  void limits() {
    Findings limits = failed_workloads(full_answers(study_.table(kAnswersTable)), study_.least_full);
    for (Finding& finding : what_limits(cuts_, study_.results, study_.table("skipped")))
      limits.push_back(std::move(finding));
    if (limits.empty()) return;
    const Html::Element opened = asked("limits", "How sure is that? What limits it");
    list_findings(limits, "findings cautions");
  }

  void best_policies() {
    const SortableTable table = winners_for_people(study_.table(kWinnersTable));
    if (table.rows.empty()) return;
    const Html::Element opened =
        asked("winners", "Which policy is best at each budget, and what does it cost?");
    write_table(*html_, table);
  }

  void views() {
    if (content_.views.empty()) return;
    const Html::Element opened = asked("views", "What did each policy forget, word by word?");
    const Html::Element list = html_->element("ul");
    for (const std::string& name : content_.views) {
      const Html::Element item = html_->element("li");
      html_->leaf("a", name.substr(0, name.rfind('.')), {{"href", "views/" + url_escaped(name)}});
    }
  }

  void fact(const std::string& name, const std::string& text) {
    if (text.empty()) return;
    html_->leaf("dt", name);
    const Html::Element value = html_->element("dd");
    html_->prose(text);
  }

  void studied() {
    const Html::Element opened = asked("studied", "What was studied?");
    {
      const Html::Element facts = html_->element("dl");
      for (const auto& [name, text] : study_facts(study_)) fact(name, text);
    }
    list_traces();
    list_policies();
    if (study_.configuration.empty()) return;
    const Html::Element details = folded("Effective configuration (`study.json`)");
    html_->leaf("pre", study_.configuration, {{"tabindex", "0"}});
  }

  void list_traces() {
    const SortableTable table = trace_table(study_);
    if (table.rows.empty()) return;
    const Html::Element details = folded(count_text(table.rows.size(), "trace"));
    write_table(*html_, table);
  }

  void list_policies() {
    const SortableTable table = policy_table(study_);
    if (table.rows.empty()) return;
    const Html::Element details = folded("Policies and their parameters");
    write_table(*html_, table);
  }

  void figures() {
    if (content_.figures.empty()) return;
    const Html::Element opened =
        asked("figures", "What else was measured? " + count_text(content_.figures.size(), "figure"));
    if (!content_.undrawn.empty())
      html_->leaf("p", "The files of figures/ were not drawn: " + content_.undrawn,
                  {{"class", "notice"}, {"role", "note"}});
    for (const Figure& figure : content_.figures) write_figure(figure);
  }

  void write_figure(const Figure& figure) {
    const Html::Element opened = figure_element(*html_, figure, false);
    if (figure.data.columns.empty()) return;
    paragraph("For papers: `figures/" + figure.name + ".svg`; numbers: `figures/" + figure.name +
              ".csv`; script: `figures/" + figure.name + ".gp`" +
              (figure.command.empty() ? "." : "; made by `" + figure.command + "`."));
  }

  void folded_table(const SortableTable& table) {
    if (table.rows.empty()) return;
    const Html::Element details = folded(table.caption);
    write_table(*html_, table);
  }

  bool has_analyses() const {
    return std::ranges::any_of(study_.tables, [](const auto& table) { return !is_statistic(table.first); });
  }

  void analyses() {
    if (!has_analyses()) return;
    const Html::Element opened = asked("analyses", "What do the traces themselves show?");
    for (const auto& [name, records] : study_.tables)
      if (!is_statistic(name)) folded_table(table_of(records, "`tables/" + name + ".csv`", kMostRows));
  }

  void method() {
    const Html::Element opened = asked("method", "How was it made, and how is it done again?");
    if (!study_.table(kAnswersTable).rows.empty())
      paragraph(
          "In the closed loop the model runs with each policy's cache in it: greedy answers are judged by "
          "the "
          "workload's own rule, and the KL divergence is that of the next token from the full cache's, fed "
          "the "
          "same tokens. A workload whose full cache answers less than " +
          rounded_text(100 * study_.least_full, 1) +
          "% of the items right ranks no policy by its answers. Where all items are answered alike the "
          "bootstrap gives an interval without width, which says nothing of items that were not asked.");
    paragraph(
        std::string(
            study_.results.rows.empty()
                ? "Nothing was replayed."
                : "Every policy was replayed on the queries, keys and values recorded from each trace's "
                  "run; there the model did not run again.") +
        " A trace's value is the mean over its seeds, which intervals draw anew, too. Means, differences and "
        "ranks take traces "
        "as "
        "their units, and each cut of the prompt by itself; their intervals" +
        (study_.confidence ? " (" + rounded_text(100 * *study_.confidence, 1) + "%)" : std::string()) +
        " are those of a bootstrap that draws traces anew within each workload, the same ones for every "
        "policy. "
        "Intervals are not corrected for the number of comparisons: of many equal policies some come out "
        "apart "
        "by chance, and the best of many looks a little better than it is.");
    if (!study_.configuration.empty())
      paragraph(
          "To do it again, save the configuration above as `study.json` and run `kvsim study study.json -o "
          "DIR`. "
          "This page was written by `kvsim report DIR`, kvsim " +
          std::string(kVersion) + '.');
    list_notes();
    folded_table(definitions("results", study_.results));
    for (const auto& [name, records] : study_.tables) folded_table(definitions(name, records));
  }

  void list_notes() {
    if (study_.notes.empty()) return;
    const Html::Element details = folded("Notes of the study");
    const Html::Element list = html_->element("ul");
    for (const std::string& note : study_.notes) html_->leaf("li", note);
  }

  static SortableTable definitions(const std::string& name, const Records& records) {
    SortableTable table{
        .caption = "Columns of `" + name + "`", .columns = {{"column"}, {"unit"}, {"meaning"}}, .rows = {}};
    for (const ColumnInfo& column : records.columns)
      if (!column.description.empty())
        table.rows.push_back({{.shown = column.key}, {.shown = column.unit}, {.shown = column.description}});
    return table;
  }

  const ReportContent& content_;
  const ReportedStudy& study_;
  const PriceList prices_;
  std::vector<Evidence> cuts_{};
  Html* html_ = nullptr;
};

}  // namespace

std::string report_page(const ReportContent& content) {
  return Page(content).make();
}

namespace {

/// Draws figures into a folder until gnuplot turns out to be missing; from then on only their numbers and
/// scripts are written.
class Drawings {
 public:
  Drawings(std::string folder, std::vector<Output> formats)
      : folder_(std::move(folder)), formats_(std::move(formats)) {
    std::error_code failed;
    if (std::filesystem::is_symlink(folder_, failed))
      input_error("is a link, which a study does not follow", folder_, "Put a folder there.");
    make_folders(folder_);
    if (std::ranges::find(formats_, Output::svg) == formats_.end()) formats_.push_back(Output::svg);
  }

  void draw(const Figure& figure) {
    if (missing_.empty()) {
      try {
        return draw_figure(figure, folder_, formats_);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        missing_ = error.what();
      }
    }
    draw_figure(figure, folder_, {}, {});
  }

  /// Why nothing was drawn; empty: everything was.
  const std::string& missing() const { return missing_; }

 private:
  const std::string folder_;
  std::vector<Output> formats_;
  std::string missing_;
};

void add_figures(ReportContent& content, Drawings& drawings, Progress& progress) {
  // Lent for as long as figures are made: results can be large.
  FigureTables tables;
  tables.results = std::move(content.study.results);
  tables.tables = std::move(content.study.tables);
  const auto add = [&](const FigureKind& kind, const FigureTables& from, const std::string& cut) {
    progress.advance();
    for (Figure& figure : figures_of(kind, from, {.cut = cut})) {
      progress.check();
      drawings.draw(figure);
      content.figures.push_back(std::move(figure));
    }
  };
  const std::vector<std::string> cuts = cuts_of(tables.results);
  const auto of_cuts = std::ranges::count_if(
      figure_kinds(), [](const FigureKind& kind) { return !kind.compares_cuts && *kind.table == '\0'; });
  progress.total = figure_kinds().size() + (std::max<std::size_t>(cuts.size(), 1) - 1) * of_cuts;
  for (const FigureKind& kind : figure_kinds())
    if (kind.compares_cuts) add(kind, tables, "");
  for (const std::string& cut : cuts) {
    const FigureTables part = tables_at(tables, cut);
    for (const FigureKind& kind : figure_kinds())
      if (!kind.compares_cuts && *kind.table == '\0') add(kind, part, cuts.size() > 1 ? cut : "");
  }
  for (const FigureKind& kind : figure_kinds())
    if (*kind.table != '\0') add(kind, tables, "");
  content.undrawn = drawings.missing();
  content.study.results = std::move(tables.results);
  content.study.tables = std::move(tables.tables);
}

}  // namespace

std::string write_report(const std::string& folder, const ReportOptions& options, Progress& progress) {
  ReportContent content{read_reported_study(folder, options.study)};
  if (!options.title.empty()) content.study.title = options.title;
  Drawings drawings(folder + "/figures", options.formats);
  add_figures(content, drawings, progress);
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/views", none))
    if (entry.path().extension() == ".html") content.views.push_back(entry.path().filename().string());
  std::ranges::sort(content.views);
  return report_page(content);
}

}  // namespace kvsim::analysis
