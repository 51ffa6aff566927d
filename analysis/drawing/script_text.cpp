#include "analysis/drawing/script_text.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "analysis/drawing/figure_text.hpp"

namespace kvsim::analysis {

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
