#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "analysis/report/budget_tables.hpp"
#include "analysis/report/html.hpp"
#include "analysis/report/report_page.hpp"
#include "tests/unit/analysis/small_study.hpp"

namespace kvsim::analysis::test_report_page {
namespace {

using Catch::Matchers::Contains;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST_CASE("Text is text in HTML, whatever it holds") {
  CHECK(html_escaped("<script>alert(\"a\" & 'b')</script>") ==
        "&lt;script&gt;alert(&quot;a&quot; &amp; &#39;b&#39;)&lt;/script&gt;");
  CHECK(html_escaped("\u00fc \u20ac \U0001F600") == "\u00fc \u20ac \U0001F600");
  CHECK(html_escaped(std::string("a\0b\x1b[1m\x7f\n\t", 10)) == "a\uFFFDb\uFFFD[1m\uFFFD\n\t");
  CHECK(html_escaped("\xff\xc0\xaf") == "\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("Elements close in order, and words in backquotes are code") {
  Html html;
  {
    const Html::Element outer = html.element("p", {{"title", "a \"b\""}});
    html.prose("x `<y>` z `");
    html.empty("img", {{"alt", ""}});
  }
  CHECK(std::move(html).take() ==
        "<p title=\"a &quot;b&quot;\">x <code>&lt;y&gt;</code> z <code></code><img alt=\"\"></p>");
}

TEST_CASE("A drawing as an address: nothing in it ends the attribute or the address") {
  CHECK(data_address("image/svg+xml", "<g a=\"#1\">50%\n\xc3\xa9</g>") ==
        "data:image/svg+xml,%3Cg a=%22%231%22%3E50%25%0A%C3%A9%3C/g%3E");
}

TEST_CASE("Tables sort by exact numbers, name their rows and can be reached by keyboard") {
  Records records{{{"trace", "", "which"}, {"loss", "share", "lost"}}, {{"t<1>", 0.123456}, {"u", Value()}}};
  Html html;
  write_table(html, table_of(records, "Numbers of `x`", 10));
  const std::string made = std::move(html).take();
  CHECK_THAT(made, Contains("role=\"region\" tabindex=\"0\" aria-label=\"Numbers of x\""));
  CHECK_THAT(made, Contains("<caption><span>Numbers of <code>x</code></span></caption>"));
  CHECK_THAT(made, Contains("<th scope=\"col\"><button type=\"button\" title=\"which\">trace</button></th>"));
  CHECK_THAT(
      made,
      Contains("<th scope=\"row\">t&lt;1&gt;</th><td class=\"number\" data-order=\"0.123456\">0.1235</td>"));
  CHECK_THAT(made, Contains("<td class=\"number\">\u2013</td>"));
  CHECK_THAT(table_of(records, "N", 1).caption, Contains("the first 1 of 2 rows"));
}

TEST_CASE("Budgets stand side by side, the best of each is marked") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.mean("x", 0.01, {}, {}, "oracle");
  study.budget = "25%";
  study.duel("b", 0.05, "a", 0.06, -0.02, 0.01, 4);
  const Evidence evidence = study.evidence();
  const SortableTable means = means_by_budget(evidence, metric("attention_loss"), kAllWorkloads);
  REQUIRE(means.columns.size() == 3);
  REQUIRE(means.rows.size() == 3);
  // Sorted by the middle budget, the lower of two; x knows the future and wins nothing.
  CHECK(means.rows[0][0].shown == "x");
  CHECK(means.rows[0][0].small == "oracle");
  CHECK(means.rows[1][0].small.empty());
  CHECK_FALSE(means.rows[0][1].marked);
  CHECK(means.rows[0][2].shown == "\u2013");
  CHECK(means.rows[1][1].shown == "10.0%");
  CHECK(means.rows[1][1].small == "9.0% to 11.0%");
  CHECK(means.rows[1][1].marked);
  CHECK(means.rows[2][2].marked);
  const SortableTable differences = differences_by_budget(evidence, metric("attention_loss"));
  CHECK(differences.rows[0][1].shown == "best");
  CHECK(differences.rows[1][1].small == "3.0 to 7.0 points; 6\u00a0of\u00a06");
  CHECK(differences.rows[0][2].shown == "\u2248 1.0 points");
  CHECK(ranks_by_budget(evidence, metric("attention_loss")).rows[1][1].shown == "2");
  CHECK(means_by_budget(evidence, metric("r"), kAllWorkloads).rows.empty());
  for (const SortableTable& table : {means, differences, ranks_by_budget(evidence, metric("attention_loss"))})
    CHECK_THAT(table.caption, Contains("cut prompt: question known to the policy"));
}

TEST_CASE("Cuts stand side by side within a budget, each with its best") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  const Evidence known = study.evidence();
  study.cut = "question";
  study.duel("b", 0.30, "a", 0.40, -0.12, -0.08, 6);
  const Evidence unknown = study.evidence();
  const SortableTable table = means_by_cut({known, unknown}, metric("attention_loss"));
  REQUIRE(table.columns.size() == 3);
  CHECK(table.columns[1].title == "10%, cut prompt");
  CHECK(table.columns[2].title == "10%, cut question");
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0][0].shown == "a");
  CHECK((table.rows[0][1].marked && !table.rows[0][2].marked));
  CHECK((table.rows[1][2].marked && table.rows[1][2].shown == "30.0%"));
  CHECK_THAT(table.caption, Contains("cut question: question not known to the policy"));
}

ReportContent content_of(const SmallStudy& study) {
  ReportContent content;
  content.study.title = "A study";
  content.study.results = study.results;
  content.study.tables = {{"differences", study.tables.differences},
                          {"means", study.tables.means},
                          {"ranks", study.tables.ranks}};
  return content;
}

TEST_CASE("A page holds no markup that came from names") {
  const std::string hostile = "</title><script>alert(1)</script>`\"'&";
  SmallStudy study;
  study.duel(hostile, 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.result(hostile, hostile, 10, 0.02);
  study.workload = hostile;
  study.mean(hostile, 0.1);
  ReportContent content = content_of(study);
  content.study.title = content.study.incomplete = content.study.configuration = content.undrawn = hostile;
  content.study.notes = {hostile};
  content.study.traces = {{hostile, hostile, 1, 2}};
  content.study.tables[hostile] = {{{hostile, hostile, hostile}}, {{hostile}}};
  content.figures.push_back({});
  Figure& figure = content.figures.back().figure;
  figure.name = figure.title = figure.reading = figure.remark = figure.command = hostile;
  figure.data.columns = {{hostile, "", ""}};
  content.figures.back().drawing.light_svg = "<svg>" + hostile + "</svg>";
  const std::string page = report_page(content);
  CHECK(count(page, "<script>") == 1);  // ours
  CHECK(count(page, "</script>") == 1);
  CHECK(count(page, "</title>") == 1);
  CHECK(report_page(content) == page);
}

TEST_CASE("Drawings stand in the page in both themes, with words for those who do not see them") {
  ReportContent content = content_of({});
  content.figures.resize(1);
  content.figures[0].figure.name = "quality";
  content.figures[0].figure.title = "Loss against budget";
  content.figures[0].figure.reading = "Lower is better.";
  content.figures[0].figure.remark = "One was left out.";
  content.figures[0].drawing = {"<svg>1</svg>", "<svg>2</svg>"};
  content.figures[0].narrow = {"<svg>3</svg>", "<svg>4</svg>"};
  const std::string page = report_page(content);
  CHECK_THAT(page, Contains("<img class=\"light\" alt=\"Loss against budget. Lower is better. One was left "
                            "out.\" src=\"data:image/svg+xml,"
                            "%3Csvg%3E1%3C/svg%3E\">"));
  CHECK_THAT(page, Contains("class=\"dark\"") && Contains("%3Csvg%3E2"));
  const std::size_t wide = page.find("class=\"drawing wide\""),
                    narrow = page.find("class=\"drawing narrow\"");
  CHECK(wide < page.find("%3Csvg%3E2"));
  CHECK(page.find("%3Csvg%3E2") < narrow);
  CHECK(narrow < page.find("%3Csvg%3E3"));
  CHECK_THAT(page, Contains("%3Csvg%3E4"));
}

TEST_CASE("A study without anything is a page all the same; an incomplete one says so at the top") {
  ReportContent content;
  content.study.results = records_of({});
  const std::string page = report_page(content);
  CHECK_THAT(page, Contains("There are no means of any metric") && !Contains("not complete"));
  content.study.incomplete = "stopped";
  content.undrawn = "no gnuplot";
  const std::string marked = report_page(content);
  CHECK(marked.find("not complete: stopped") < marked.find("<main>"));
  CHECK_THAT(marked, Contains("Not drawn: no gnuplot"));
}

}  // namespace
}  // namespace kvsim::analysis::test_report_page
