#include "analysis/report/page_frame.hpp"

#include <string_view>

#include "sim/base/gzip.hpp"
#include "sim/base/version.hpp"

namespace kvsim::analysis {

// page_style.css and page_script.js, compiled in (CMakeLists.txt).
std::string_view page_style();
std::string_view page_script();

namespace {

void write_head(Html& html, const PageFrame& frame) {
  html.new_line();
  const Html::Element head = html.element("head");
  html.empty("meta", {{"charset", "utf-8"}});
  // Names in a study are from anywhere: whatever one of them might smuggle in, nothing but the page's own
  // script and style runs, and nothing is fetched.
  html.empty("meta",
             {{"http-equiv", "Content-Security-Policy"},
              {"content", "default-src 'none'; style-src " + allowed_content(page_style()) + "; script-src " +
                              allowed_content(page_script()) + "; base-uri 'none'; form-action 'none'"}});
  html.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  html.empty("meta", {{"name", "generator"}, {"content", std::string("kvsim ") + kVersion}});
  html.leaf("title", frame.title);
  html.new_line();
  const Html::Element style = html.element("style");
  html.verbatim(page_style());
}

void write_header(Html& html, const PageFrame& frame) {
  {
    const Html::Element header = html.element("header");
    {
      const Html::Element words = html.element("div");
      html.leaf("h1", frame.title);
      html.leaf("p", frame.words, {{"class", "quiet"}});
    }
    html.leaf("button", "Dark theme", {{"type", "button"}, {"id", "theme"}, {"hidden", ""}});
  }
  if (!frame.notice.empty()) html.leaf("p", frame.notice, {{"class", "notice"}, {"role", "note"}});
}

}  // namespace

std::string framed_page(const PageFrame& frame, const std::function<void(Html&)>& main) {
  Html html;
  html.verbatim("<!DOCTYPE html>\n");
  {
    const Html::Element root = html.element("html", {{"lang", "en"}});
    write_head(html, frame);
    html.new_line();
    const Html::Element body = html.element("body");
    write_header(html, frame);
    {
      const Html::Element opened = html.element("main");
      main(html);
    }
    html.leaf("script", base64(gzipped(frame.data)), {{"type", "application/octet-stream"}, {"id", "data"}});
    const Html::Element script = html.element("script");
    html.verbatim(page_script());
  }
  html.new_line();
  return std::move(html).take();
}

Html::Element asked(Html& html, const std::string& id, const std::string& question) {
  html.new_line();
  Html::Element opened = html.element("details", {{"id", id}, {"class", "asked"}});
  html.leaf("summary", question);
  return opened;
}

Html::Element folded(Html& html, const std::string& summary) {
  html.new_line();
  Html::Element opened = html.element("details");
  const Html::Element line = html.element("summary");
  html.prose(summary);
  return opened;
}

void paragraph(Html& html, const std::string& text) {
  const Html::Element opened = html.element("p");
  html.prose(text);
}

Html::Element figure_element(Html& html, const Figure& figure, bool open) {
  html.new_line();
  Html::Attributes attributes{{"class", "figure"}, {"id", "figure-" + figure.name}};
  if (open) attributes.emplace_back("open", "");
  Html::Element opened = html.element("details", attributes);
  html.leaf("summary", figure.title);
  html.empty_element("div", {{"class", "plot"}, {"data-figure", figure.name}});
  paragraph(html, figure.reading);
  if (!figure.remark.empty()) paragraph(html, figure.remark);
  return opened;
}

}  // namespace kvsim::analysis
