#include "analysis/report/report_page.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/cost/price_table.hpp"
#include "analysis/drawing/figure_text.hpp"
#include "analysis/report/answer_findings.hpp"
#include "analysis/report/answer_tables.hpp"
#include "analysis/report/budget_tables.hpp"
#include "analysis/report/page_assets.hpp"
#include "analysis/report/study_summary.hpp"
#include "analysis/report/winners.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/version.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostRows = 100;   ///< of a table of an analysis; the rest is in its file
constexpr std::size_t kShortTable = 12;  ///< rows that need no folding

bool is_statistic(const std::string& table) {
  return table == "means" || table == "differences" || table == "ranks" || table == "skipped" ||
         table == kAnswersTable || table == kPriceTable || table == kWinnersTable;
}

class Page {
 public:
  explicit Page(const ReportContent& content)
      : content_(content), study_(content.study), prices_(content.study.table(kPriceTable)) {
    const Records &means = study_.table("means"), &answers = study_.table(kAnswersTable);
    for (const std::string& cut : cuts_of(study_.results.rows.empty() ? means : study_.results))
      cuts_.emplace_back(cut, means, study_.table("differences"), study_.table("ranks"), study_.results);
    if (answers.rows.empty()) return;
    for (const Evidence& at : cuts_) answers_.emplace_back(at, answers, means, study_.results);
  }

  std::string make() && {
    html_.verbatim("<!DOCTYPE html>\n");
    {
      const Html::Element root = html_.element("html", {{"lang", "en"}});
      head();
      body();
    }
    html_.new_line();
    return std::move(html_).take();
  }

 private:
  void head() {
    html_.new_line();
    const Html::Element head = html_.element("head");
    html_.empty("meta", {{"charset", "utf-8"}});
    // Names in a study are from anywhere: whatever one of them might smuggle in, nothing but the page's own
    // script and style runs, and nothing is fetched.
    html_.empty("meta",
                {{"http-equiv", "Content-Security-Policy"},
                 {"content", "default-src 'none'; img-src data:; style-src " + allowed_content(page_style()) +
                                 "; script-src " + allowed_content(page_script()) +
                                 "; base-uri 'none'; form-action 'none'"}});
    html_.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
    html_.empty("meta", {{"name", "generator"}, {"content", std::string("kvsim ") + kVersion}});
    html_.leaf("title", study_.title);
    html_.new_line();
    const Html::Element style = html_.element("style");
    html_.verbatim(page_style());
  }

  void body() {
    html_.new_line();
    const Html::Element body = html_.element("body");
    header();
    {
      const Html::Element main = html_.element("main");
      findings();
      answers();
      studied();
      figures();
      tables();
      analyses();
      method();
    }
    const Html::Element script = html_.element("script");
    html_.verbatim(page_script());
  }

  void header() {
    {
      const Html::Element header = html_.element("header");
      {
        const Html::Element words = html_.element("div");
        html_.leaf("h1", study_.title);
        html_.leaf("p",
                   answers_.empty()
                       ? "What KV cache policies would have lost on recorded runs, by kvsim."
                       : "What a model answers through the caches of KV cache policies, by kvsim.",
                   {{"class", "quiet"}});
      }
      html_.leaf("button", "Dark theme", {{"type", "button"}, {"id", "theme"}, {"hidden", ""}});
    }
    if (!study_.incomplete.empty())
      html_.leaf("p", "This study is not complete: " + study_.incomplete,
                 {{"class", "notice"}, {"role", "note"}});
    const Html::Element nav = html_.element("nav", {{"aria-label", "Sections"}});
    const Html::Element list = html_.element("ul");
    for (const auto& [id, title] : sections()) {
      const Html::Element item = html_.element("li");
      html_.leaf("a", title, {{"href", "#" + id}});
    }
  }

  std::vector<std::pair<std::string, std::string>> sections() const {
    std::vector<std::pair<std::string, std::string>> all{{"findings", "Findings"}};
    if (!answers_.empty()) all.emplace_back("answers", "Answers");
    all.emplace_back("studied", "What was studied");
    if (!content_.figures.empty() || !content_.undrawn.empty()) all.emplace_back("figures", "Figures");
    if (has_means()) all.emplace_back("tables", "Tables");
    if (has_analyses()) all.emplace_back("analyses", "Analyses of traces");
    all.emplace_back("method", "How it was made");
    return all;
  }

  /// A section with its heading; its content follows.
  Html::Element section(const std::string& id, const std::string& title) {
    html_.new_line();
    Html::Element opened = html_.element("section", {{"id", id}});
    html_.leaf("h2", title);
    return opened;
  }

  void paragraph(const std::string& text) {
    const Html::Element opened = html_.element("p");
    html_.prose(text);
  }

  /// Folded, or open at first, with a line that says what is inside.
  Html::Element folded(const std::string& summary, bool open = false) {
    html_.new_line();
    Html::Element opened =
        html_.element("details", open ? Html::Attributes{{"open", ""}} : Html::Attributes{});
    const Html::Element line = html_.element("summary");
    html_.prose(summary);
    return opened;
  }

  void list_findings(const Findings& all, const std::string& kind) {
    const Html::Element list = html_.element("ol", {{"class", kind}});
    for (const Finding& finding : all) {
      html_.new_line();
      const Html::Element item = html_.element("li");
      paragraph(finding.text);
      if (finding.details.empty()) continue;
      const Html::Element details = folded("The numbers", &finding == &all.front());
      const Html::Element lines = html_.element("ul");
      for (const std::string& detail : finding.details) {
        const Html::Element line = html_.element("li");
        html_.prose(detail);
      }
    }
  }

  bool has_means() const {
    return std::any_of(cuts_.begin(), cuts_.end(),
                       [](const Evidence& at) { return at.leading_metric() != nullptr; });
  }

  void heading(const std::string& text) {
    if (!text.empty()) html_.leaf("h3", capitalised(text));
  }

  void findings() {
    const Html::Element opened = section("findings", "Findings");
    table_if_any(winners_for_people(study_.table(kWinnersTable)));
    for (const AnswerEvidence& at : answers_) {
      const Findings found = what_answers_say(at, prices_);
      if (found.empty()) continue;
      heading("answers; " + cut_title(at.statistics().cut()));
      list_findings(found, "findings");
    }
    if (answers_.size() > 1 && answers_.front().metric() != nullptr) {
      if (const Findings between = orders_between_cuts(cuts_, *answers_.front().metric()); !between.empty()) {
        heading("what the cut changes in the answers");
        list_findings(between, "findings");
      }
    }
    if (!has_means() && answers_.empty())
      paragraph("There are no means of any metric: no policy ran, or the study asked for analyses alone.");
    if (const Findings between = what_cuts_do(cuts_); !between.empty()) {
      heading("what the cut changes");
      list_findings(between, "findings");
    }
    for (const Evidence& at : cuts_) {
      const Findings found = what_policies_do(at, prices_);
      if (found.empty()) continue;
      heading((answers_.empty() ? "" : "recorded runs; ") + cut_title(at.cut()));
      list_findings(found, "findings");
    }
    Findings limits = failed_workloads(full_answers(study_.table(kAnswersTable)), study_.least_full);
    for (Finding& finding : what_limits(cuts_, study_.results, study_.table("skipped")))
      limits.push_back(std::move(finding));
    if (limits.empty()) return;
    html_.leaf("h3", "What to keep in mind");
    list_findings(limits, "findings cautions");
  }

  void answers() {
    if (answers_.empty()) return;
    const Html::Element opened = section("answers", "Answers");
    paragraph(
        "The model read each prompt once, each policy cut its cache, and the answer was computed through "
        "what "
        "was left. Beside it stand what replays of the same items measured, which never let the model drift. "
        "Every row: `tables/answers.csv`.");
    for (const DrawnFigure& each : content_.figures)
      if (each.table == kAnswersTable) write_figure(each);
    for (const AnswerEvidence& at : answers_) {
      if (at.metric() == nullptr) continue;
      heading(cut_title(at.statistics().cut()));
      table_if_any(means_by_budget(at.statistics(), *at.metric(), kAllWorkloads));
      for (const std::string& workload : at.statistics().workloads())
        folded_table(means_by_budget(at.statistics(), *at.metric(), workload));
      for (const std::string& budget : at.statistics().budgets())
        folded_table(answers_beside_losses(at, budget));
    }
  }

  void fact(const std::string& name, const std::string& text) {
    if (text.empty()) return;
    html_.leaf("dt", name);
    const Html::Element value = html_.element("dd");
    html_.prose(text);
  }

  void studied() {
    const Html::Element opened = section("studied", "What was studied");
    {
      const Html::Element facts = html_.element("dl");
      for (const auto& [name, text] : study_facts(study_)) fact(name, text);
    }
    list_traces();
    list_policies();
    if (study_.configuration.empty()) return;
    const Html::Element details = folded("Effective configuration (`study.json`)");
    html_.leaf("pre", study_.configuration, {{"tabindex", "0"}});
  }

  void list_traces() {
    const SortableTable table = trace_table(study_);
    if (table.rows.empty()) return;
    const Html::Element details = folded(count_text(table.rows.size(), "trace"));
    write_table(html_, table);
  }

  void list_policies() {
    const SortableTable table = policy_table(study_);
    if (table.rows.empty()) return;
    const Html::Element details = folded("Policies and their parameters");
    write_table(html_, table);
  }

  void figures() {
    if (content_.figures.empty() && content_.undrawn.empty()) return;
    const Html::Element opened = section("figures", "Figures");
    if (!content_.undrawn.empty())
      html_.leaf("p", "Not drawn: " + content_.undrawn, {{"class", "notice"}, {"role", "note"}});
    for (const DrawnFigure& each : content_.figures)
      if (!stands_by_table(each)) write_figure(each);
  }

  bool stands_by_table(const DrawnFigure& drawn) const { return study_.tables.contains(drawn.table); }

  /// In both themes, of which one is seen.
  void write_drawing(const Figure& figure, const Drawing& drawing, const std::string& kind) {
    const Html::Element opened = html_.element("div", {{"class", kind}});
    const std::string alt =
        figure.title + ". " + figure.reading + (figure.remark.empty() ? "" : ' ' + figure.remark);
    for (const auto& [theme, svg] :
         {std::pair("light", &drawing.light_svg), std::pair("dark", &drawing.dark_svg)}) {
      html_.empty("img", {{"class", theme}, {"alt", alt}, {"src", data_address("image/svg+xml", *svg)}});
      html_.new_line();
    }
  }

  /// The style sheet shows the one that fits the screen.
  void write_drawings(const DrawnFigure& drawn) {
    if (drawn.narrow.light_svg.empty()) return write_drawing(drawn.figure, drawn.drawing, "drawing");
    write_drawing(drawn.figure, drawn.drawing, "drawing wide");
    write_drawing(drawn.figure, drawn.narrow, "drawing narrow");
  }

  void write_figure(const DrawnFigure& drawn) {
    const Figure& figure = drawn.figure;
    html_.new_line();
    const Html::Element opened = html_.element("figure", {{"id", "figure-" + figure.name}});
    // Drawings show title and remark themselves.
    const bool shown = !drawn.drawing.light_svg.empty();
    html_.leaf(stands_by_table(drawn) ? "h4" : "h3", figure.title, {{"class", shown ? "spoken" : "shown"}});
    if (shown) write_drawings(drawn);
    const Html::Element caption = html_.element("figcaption");
    paragraph(figure.reading);
    if (!shown && !figure.remark.empty()) paragraph(figure.remark);
    if (figure.data.columns.empty()) return;
    paragraph("Numbers: `figures/" + figure.name + ".csv`; script: `figures/" + figure.name + ".gp`" +
              (figure.command.empty() ? "." : "; made by `" + figure.command + "`."));
  }

  void tables() {
    if (!has_means()) return;
    const Html::Element opened = section("tables", "Tables");
    paragraph(
        "A heading sorts its column. All numbers: `tables/means.csv`, `tables/differences.csv.gz` and "
        "`tables/ranks.csv`.");
    if (const Metric* leading = cuts_.front().leading_metric(); leading != nullptr && cuts_.size() > 1)
      table_if_any(means_by_cut(cuts_, *leading));
    for (const Evidence& at : cuts_) tables_of(at);
  }

  void tables_of(const Evidence& at) {
    const Metric* leading = at.leading_metric();
    if (leading == nullptr) return;
    heading(cut_title(at.cut()));
    table_if_any(means_by_budget(at, *leading, kAllWorkloads));
    table_if_any(differences_by_budget(at, *leading));
    table_if_any(ranks_by_budget(at, *leading));
    for (const std::string& workload : at.workloads()) folded_table(means_by_budget(at, *leading, workload));
    for (const Metric& metric : metrics())
      if (&metric != leading) folded_table(means_by_budget(at, metric, kAllWorkloads));
  }

  void table_if_any(const SortableTable& table) {
    if (!table.rows.empty()) write_table(html_, table);
  }

  void folded_table(const SortableTable& table) {
    if (table.rows.empty()) return;
    const Html::Element details = folded(table.caption);
    write_table(html_, table);
  }

  bool has_analyses() const {
    return std::any_of(study_.tables.begin(), study_.tables.end(),
                       [](const auto& table) { return !is_statistic(table.first); });
  }

  void analyses() {
    if (!has_analyses()) return;
    const Html::Element opened = section("analyses", "Analyses of traces");
    for (const auto& [name, records] : study_.tables) {
      if (is_statistic(name)) continue;
      const SortableTable table = table_of(records, "`tables/" + name + ".csv`", kMostRows);
      html_.leaf("h3", name);
      for (const DrawnFigure& each : content_.figures)
        if (each.table == name) write_figure(each);
      if (records.rows.size() <= kShortTable)
        write_table(html_, table);
      else
        folded_table(table);
    }
  }

  void method() {
    const Html::Element opened = section("method", "How it was made");
    if (!answers_.empty())
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
    const Html::Element list = html_.element("ul");
    for (const std::string& note : study_.notes) html_.leaf("li", note);
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
  std::vector<AnswerEvidence> answers_{};  ///< one per cut; empty: the closed loop was not run
  Html html_;
};

}  // namespace

std::string report_page(const ReportContent& content) {
  return Page(content).make();
}

}  // namespace kvsim::analysis
