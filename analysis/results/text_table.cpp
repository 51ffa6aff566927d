#include "analysis/results/text_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <ostream>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

/// A size as bytes_text() writes it.
struct SizeField {
  double value = 0;
  std::size_t unit = 0;  ///< of kSizeUnits
};
constexpr std::array<std::string_view, 7> kSizeUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

std::optional<SizeField> size_field(const std::string& text) {
  SizeField out;
  const char* const end = text.data() + text.size();
  const auto [behind, failed] = std::from_chars(text.data(), end, out.value);
  if (failed != std::errc() || behind == end || *behind != ' ') return {};
  const auto* unit = std::ranges::find(kSizeUnits, std::string_view(behind + 1, end));
  out.unit = static_cast<std::size_t>(unit - kSizeUnits.begin());
  return unit == kSizeUnits.end() ? std::nullopt : std::optional(out);
}

std::string painted(const std::string& text, const char* code) {
  return code == nullptr ? text : code + text + kPlainCode;
}

void print_line(std::ostream& out, const std::vector<std::string>& fields) {
  std::string line = joined(fields, "  ");
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << '\n';
}

}  // namespace

void TextTable::add_row(const std::vector<std::string>& fields, bool best) {
  best_.push_back(best);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::string& field = columns_[i].fields.emplace_back(fields[i]);
    // A row is a line, whatever a model generates.
    std::ranges::replace_if(
        field, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  }
}

void TextTable::print(std::ostream& out) {
  print_head(out);
  for (std::size_t row = 0; row < best_.size(); ++row) print_row(out, row);
  print_left_out(out);
}

void TextTable::print_head(std::ostream& out) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    columns_[i].take_name();
    if (i >= naming_columns()) columns_[i].move_unit();
  }
  for (Column& column : columns_) column.lay_out();
  choose_columns();
  std::size_t height = 0;
  for (const Column& column : columns_)
    if (column.shown) height = std::max(height, column.heading_lines.size());
  for (std::size_t line = 0; line < height; ++line) {
    std::vector<std::string> fields;
    for (const Column& column : columns_) {
      if (!column.shown) continue;
      const std::size_t blank = height - std::min(height, column.heading_lines.size());
      fields.push_back(line < blank ? std::string(column.width, ' ')
                                    : column.padded_heading(column.heading_lines[line - blank]));
    }
    print_line(out, fields);
  }
}

void TextTable::print_row(std::ostream& out, std::size_t row) const {
  const std::size_t naming = naming_columns();
  const bool colours = table_look().colours;
  const bool empty = naming < columns_.size() &&
                     std::all_of(columns_.begin() + static_cast<std::ptrdiff_t>(naming), columns_.end(),
                                 [&](const Column& column) { return column.fields[row] == "-"; });
  std::vector<std::string> fields;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    if (!column.shown) continue;
    const bool interval = column.heading.ends_with(" low") || column.heading.ends_with(" high");
    fields.push_back(painted(column.padded(column.fields[row]), !colours                   ? nullptr
                                                                : empty || interval        ? kFaintCode
                                                                : best_[row] && i < naming ? kBestCode
                                                                                           : nullptr));
  }
  print_line(out, fields);
}

void TextTable::print_left_out(std::ostream& out) const {
  std::vector<std::string> names;
  for (const Column& column : columns_)
    if (!column.shown) names.push_back(column.name);
  const TableLook& look = table_look();
  if (!names.empty() && look.width > 0 && look.columns.empty())
    out << '\n'
        << wrapped_text("No room for: " + joined(names) + " (--wide shows all, --columns LIST these)",
                        look.width);
}

std::size_t TextTable::naming_columns() const {
  const auto other = std::find_if(columns_.begin() + (columns_.empty() ? 0 : 1), columns_.end(),
                                  [](const Column& column) { return column.align != Align::left; });
  return static_cast<std::size_t>(other - columns_.begin());
}

void TextTable::choose_columns() {
  TableLook& look = table_look();
  const std::size_t naming = naming_columns();
  const bool asked =
      std::ranges::any_of(columns_, [&](const Column& column) { return look.asks_for(column.name); });
  std::size_t used = 0;
  bool room = true;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    Column& column = columns_[i];
    look.there.insert(column.name);
    used += column.width + (i == 0 ? 0 : 2);
    room = look.wide || look.width == 0 || (room && used <= look.width);
    column.shown = i < naming || (asked ? look.asks_for(column.name) : room);
  }
}

void TextTable::Column::take_name() {
  name = heading;
  std::ranges::replace(name, ' ', '_');
}

void TextTable::Column::lay_out() {
  for (std::size_t begin = 0; begin <= heading.size();) {
    const std::size_t end = std::min(heading.find(' ', begin), heading.size());
    heading_lines.push_back(heading.substr(begin, end - begin));
    width = std::max(width, end - begin);
    begin = end + 1;
  }
  for (const std::string& field : fields) tail = std::max(tail, tail_of(field));
  for (const std::string& field : fields) width = std::max(width, characters(field) - tail_of(field) + tail);
}

/// Sizes become numbers of the largest unit in which the least of them keeps its digits, if the largest has
/// at most four before the point then.
void TextTable::Column::move_unit() {
  constexpr double kLeast = 0.1, kMost = 1e4;
  std::vector<std::optional<SizeField>> sizes;
  std::vector<double> bytes;
  for (const std::string& field : fields) {
    sizes.push_back(size_field(field));
    if (!sizes.back() && field != "-") return;
    if (sizes.back() && sizes.back()->value > 0)
      bytes.push_back(std::ldexp(sizes.back()->value, 10 * static_cast<int>(sizes.back()->unit)));
  }
  if (bytes.empty()) return;
  const auto [least, most] = std::ranges::minmax_element(bytes);
  std::size_t unit = 0;
  while (unit + 1 < kSizeUnits.size() && std::ldexp(*most, -10 * static_cast<int>(unit)) >= 1024 &&
         std::ldexp(*least, -10 * static_cast<int>(unit + 1)) >= kLeast)
    ++unit;
  if (std::ldexp(*most, -10 * static_cast<int>(unit)) >= kMost) return;
  const auto in_unit = [&](const SizeField& size) {
    return std::ldexp(size.value, 10 * (static_cast<int>(size.unit) - static_cast<int>(unit)));
  };
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (!sizes[i]) continue;
    std::array<char, 16> text{};
    char* const end = std::to_chars(text.data(), text.data() + text.size(), in_unit(*sizes[i]),
                                    std::chars_format::general, 4)
                          .ptr;
    fields[i] = std::string(text.data(), end);
  }
  align = Align::point;
  if (heading.ends_with("bytes")) heading.resize(heading.size() - std::min<std::size_t>(heading.size(), 6));
  heading += (heading.empty() ? "" : " ") + std::string(kSizeUnits[unit]);
}

std::size_t TextTable::Column::tail_of(const std::string& field) const {
  const std::size_t point = field.find_first_of(".e");
  return align != Align::point || point == std::string::npos ? 0 : field.size() - point;
}

std::string TextTable::Column::padded_heading(const std::string& line) const {
  const std::string blank(width - line.size(), ' ');
  return align == Align::left ? line + blank : blank + line;
}

std::string TextTable::Column::padded(const std::string& field) const {
  const std::string after(align == Align::left ? width - characters(field) : tail - tail_of(field), ' ');
  return std::string(width - characters(field) - after.size(), ' ') + field + after;
}

namespace {

thread_local TableLook unlimited;
thread_local TableLook* look_of_thread = &unlimited;

}  // namespace

bool TableLook::asks_for(const std::string& column) const {
  return std::ranges::any_of(columns,
                             [&](const std::string& name) { return plain_name(name) == plain_name(column); });
}

void TableLook::check_columns() const {
  if (columns.empty()) return;
  if (there.empty())
    usage_error("no table was printed", "--columns",
                "It chooses among columns of tables; files have them all.");
  for (const std::string& name : columns)
    if (std::ranges::none_of(
            there, [&](const std::string& column) { return plain_name(name) == plain_name(column); }))
      usage_error("no column of this name", "--columns " + name,
                  suggestion(name, {there.begin(), there.end()}));
}

TableLook& table_look() {
  return *look_of_thread;
}

UseTableLook::UseTableLook(TableLook& look) : before_(std::exchange(look_of_thread, &look)) {}

UseTableLook::~UseTableLook() {
  look_of_thread = before_;
}

}  // namespace kvsim::analysis
