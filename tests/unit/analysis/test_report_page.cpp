#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

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

TEST_CASE("Bytes as base64: every remainder") {
  CHECK(base64("") == "");
  CHECK(base64("M") == "TQ==");
  CHECK(base64("Ma") == "TWE=");
  CHECK(base64("Man\xff") == "TWFu/w==");
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
  Figure& figure = content.figures.back();
  figure.name = figure.title = figure.reading = figure.remark = figure.command = hostile;
  figure.data.columns = {{hostile, "", ""}};
  const std::string page = report_page(content);
  CHECK(count(page, "<script>") == 1);   // ours
  CHECK(count(page, "</script>") == 2);  // that, and data
  CHECK(count(page, "</title>") == 1);
  CHECK(report_page(content) == page);
}

TEST_CASE("A study without anything is a page all the same; an incomplete one says so at the top") {
  ReportContent content;
  content.study.results = records_of({});
  const std::string page = report_page(content);
  CHECK_THAT(page, !Contains("not complete"));
  content.study.incomplete = "stopped";
  const std::string marked = report_page(content);
  CHECK(marked.find("not complete: stopped") < marked.find("<main>"));
}

}  // namespace
}  // namespace kvsim::analysis::test_report_page
