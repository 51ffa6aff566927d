#include "analysis/report/sortable_table.hpp"

#include <algorithm>

#include "analysis/results/numbers.hpp"

namespace kvsim::analysis {
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

}  // namespace kvsim::analysis
