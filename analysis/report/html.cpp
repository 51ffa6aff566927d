#include "analysis/report/html.hpp"

#include <algorithm>
#include <string_view>

#include "analysis/results/json_string.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/version.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
}

std::string_view escape(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0 || is_control(text[0])) {
      out += kReplacement;
    } else if (const std::string_view entity = escape(text[0]); !entity.empty()) {
      out += entity;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = at; i < at + 3; ++i)
      bits = bits << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
    for (int shift = 18; shift >= 0; shift -= 6) out += kDigits[bits >> shift & 63];
  }
  for (std::size_t i = 0; i < (3 - bytes.size() % 3) % 3; ++i) out[out.size() - 1 - i] = '=';
  return out;
}

std::string allowed_content(std::string_view content) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Sha256 sum;
  sum.update(content.data(), content.size());
  // Base64: three hexadecimal digits are two of it. 64 are 42 and two thirds, which = fills.
  const std::string hex = sum.hex() + "00";
  std::string out;
  for (std::size_t at = 0; at < hex.size(); at += 3) {
    const unsigned long bits = std::stoul(hex.substr(at, 3), nullptr, 16);
    out += {kDigits[bits >> 6], kDigits[bits & 63]};
  }
  out.back() = '=';
  return "'sha256-" + out + "'";
}

Html::Element Html::element(std::string_view name, const Attributes& attributes) {
  start(name, attributes);
  return {*this, name};
}

void Html::leaf(std::string_view name, std::string_view text, const Attributes& attributes) {
  const Element opened = element(name, attributes);
  out_ += html_escaped(text);
}

void Html::empty(std::string_view name, const Attributes& attributes) {
  start(name, attributes);
}

void Html::prose(std::string_view text) {
  bool code = false;
  for (std::size_t at = 0; at <= text.size(); code = !code) {
    const std::size_t end = std::min(text.find('`', at), text.size());
    if (code)
      leaf("code", text.substr(at, end - at));
    else
      out_ += html_escaped(text.substr(at, end - at));
    at = end + 1;
  }
}

void Html::start(std::string_view name, const Attributes& attributes) {
  out_.append("<").append(name);
  for (const auto& [key, value] : attributes)
    out_.append(" ").append(key).append("=\"").append(html_escaped(value)).append("\"");
  out_ += '>';
}

namespace {

std::string without_backquotes(std::string text) {
  std::erase(text, '`');
  return text;
}

void write_head(Html& html, const std::vector<SortableTable::Column>& columns) {
  const Html::Element head = html.element("thead");
  const Html::Element row = html.element("tr");
  for (const SortableTable::Column& column : columns) {
    Html::Attributes attributes{{"scope", "col"}};
    if (column.numeric) attributes.emplace_back("class", "number");
    const Html::Element cell = html.element("th", attributes);
    Html::Attributes button{{"type", "button"}};
    if (!column.explained.empty()) button.emplace_back("title", column.explained);
    html.leaf("button", column.title, button);
  }
}

void write_cell(Html& html, const SortableTable::Cell& cell, bool names_row, bool numeric) {
  Html::Attributes attributes;
  if (names_row) attributes.emplace_back("scope", "row");
  if (numeric || cell.marked)
    attributes.emplace_back("class", !cell.marked ? "number" : numeric ? "number best" : "best");
  if (!cell.order.empty()) attributes.emplace_back("data-order", cell.order);
  const Html::Element opened = html.element(names_row ? "th" : "td", attributes);
  html.text(cell.shown);
  if (!cell.small.empty()) html.leaf("small", cell.small);
}

SortableTable::Cell cell_of(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return {.shown = *text};
  const auto found = number(value);
  return found ? SortableTable::Cell{.shown = rounded_text(*found), .order = exact_text(*found)}
               : SortableTable::Cell{.shown = "\u2013"};
}

bool is_numeric(const Records& records, std::size_t column) {
  return std::ranges::none_of(records.rows, [&](const std::vector<Value>& row) {
    return std::holds_alternative<std::string>(row[column]);
  });
}

}  // namespace

void write_table(Html& html, const SortableTable& table) {
  html.new_line();
  // A region that scrolls must be reachable by keyboard, and then have a name.
  const Html::Element region = html.element("div", {{"class", "scroll"},
                                                    {"role", "region"},
                                                    {"tabindex", "0"},
                                                    {"aria-label", without_backquotes(table.caption)}});
  const Html::Element opened = html.element("table", {{"class", "sortable"}});
  {
    const Html::Element caption = html.element("caption");
    const Html::Element words = html.element("span");  // stays in sight while the table scrolls
    html.prose(table.caption);
  }
  write_head(html, table.columns);
  const Html::Element body = html.element("tbody");
  for (const std::vector<SortableTable::Cell>& row : table.rows) {
    html.new_line();
    const Html::Element line = html.element("tr");
    for (std::size_t i = 0; i < row.size(); ++i) write_cell(html, row[i], i == 0, table.columns[i].numeric);
  }
}

SortableTable table_of(const Records& records, const std::string& caption, std::size_t most_rows) {
  SortableTable table{.caption = caption, .columns = {}, .rows = {}};
  const std::size_t shown = std::min(most_rows, records.rows.size());
  if (shown < records.rows.size())
    table.caption +=
        " (the first " + std::to_string(shown) + " of " + std::to_string(records.rows.size()) + " rows)";
  for (std::size_t i = 0; i < records.columns.size(); ++i) {
    const ColumnInfo& column = records.columns[i];
    table.columns.push_back(
        {.title = column.key,
         .explained = column.description + (column.unit.empty() ? "" : " [" + column.unit + "]"),
         .numeric = is_numeric(records, i)});
  }
  for (std::size_t r = 0; r < shown; ++r) {
    std::vector<SortableTable::Cell>& row = table.rows.emplace_back();
    for (const Value& value : records.rows[r]) row.push_back(cell_of(value));
  }
  return table;
}

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
