#include "analysis/drawing/svg_text.hpp"

#include <algorithm>
#include <cctype>

#include "analysis/drawing/figure_text.hpp"

namespace kvsim::analysis {
namespace {

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

/// The content of the first element `tag`.
void set_content(std::string& svg, const std::string& tag, const std::string& content) {
  const std::string open = "<" + tag + ">", close = "</" + tag + ">";
  const std::size_t begin = svg.find(open), end = svg.find(close);
  if (begin == std::string::npos || end == std::string::npos) return;
  svg.replace(begin + open.size(), end - begin - open.size(), content);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Titles gnuplot gives to each plot say nothing and become tooltips.
void drop_part_titles(std::string& svg) {
  for (std::size_t at = svg.find("</title>"); (at = svg.find("<title>", at)) != std::string::npos;)
    svg.erase(at, svg.find("</title>", at) + 8 - at);
}

/// gnuplot opens a group for each pen, whether or not it draws with it, on lines of their own.
void drop_empty_groups(std::string& svg) {
  std::string out;
  for (std::size_t at = 0; at < svg.size();) {
    const std::size_t end = std::min(svg.find("</g>", at), svg.size());
    out.append(svg, at, end - at);
    if (end == svg.size()) break;
    at = end + 4;
    const std::size_t ink = out.find_last_not_of(" \t\n"), tag = out.rfind('<', ink);
    if (out[ink] == '>' && out.compare(tag, 3, "<g ") == 0)
      out.erase(tag);
    else
      out += "</g>";
  }
  svg = std::move(out);
}

/// Lines of markup begin at their left. A label has no tabs: one_line() made them spaces.
void drop_indents(std::string& svg) {
  std::erase(svg, '\t');
  for (std::size_t at = 0; (at = svg.find("\n\n", at)) != std::string::npos;) svg.erase(at, 1);
}

/// The attribute that names the fonts, with the space before it; gnuplot has it beside each text.
std::string font_family(const std::string& svg) {
  const std::string name = " font-family=\"";
  const std::size_t begin = svg.find(name);
  if (begin == std::string::npos) return "";
  return svg.substr(begin, svg.find('"', begin + name.size()) + 1 - begin);
}

/// A tag with its names made unique, fonts in the first one alone, and no pen that SVG has anyway. Text
/// outside of tags may hold anything and is left alone.
std::string unique_tag(std::string tag, const std::string& prefix, const std::string& fonts) {
  if (!fonts.empty()) replace_all(tag, fonts, "");
  replace_all(tag, " stroke-linecap=\"butt\" stroke-linejoin=\"miter\"", "");
  for (const std::string before : {" id='", " id=\"", "href='#", "href=\"#", "url(#"})
    replace_all(tag, before, before + prefix);
  replace_all(tag, "<image ", "<image style='image-rendering:pixelated' ");
  replace_all(tag, "<svg ", "<svg role=\"img\"" + fonts + ' ');
  return tag;
}

std::string unique_names(const std::string& svg, const std::string& prefix) {
  const std::string fonts = font_family(svg);
  std::string out;
  for (std::size_t at = 0; at < svg.size();) {
    const std::size_t begin = std::min(svg.find('<', at), svg.size());
    const std::size_t end = std::min(svg.find('>', begin), svg.size() - 1) + 1;
    std::string text = svg.substr(at, begin - at);
    replace_all(text, "]]>", "]]&gt;");  // gnuplot leaves > alone, and this ends a section of CDATA
    out += text;
    if (begin < svg.size()) out += unique_tag(svg.substr(begin, end - begin), prefix, fonts);
    at = end;
  }
  return out;
}

/// "quality-isr_dark_".
std::string prefix_of(const Figure& figure, Theme theme) {
  std::string out;
  for (const char c : figure.name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return out + '_' + theme_name(theme) + '_';
}

}  // namespace

std::string page_svg(const std::string& svg, const Figure& figure, Theme theme) {
  std::string out = unique_names(svg, prefix_of(figure, theme));
  drop_part_titles(out);
  drop_empty_groups(out);
  std::string words = figure.reading;
  for (const std::string& more : {figure.remark, figure.command})
    if (!more.empty()) words += (words.empty() ? "" : " ") + more;
  drop_indents(out);
  set_content(out, "title", xml_text(figure.title));
  set_content(out, "desc", xml_text(words));
  return out;
}

}  // namespace kvsim::analysis
