#pragma once
/// Aligned columns for people, as many as there is room for.
#include <cstddef>
#include <iosfwd>
#include <set>
#include <string>
#include <vector>

namespace kvsim::analysis {

enum class Align { left, right, point };  ///< point: decimal points under each other

/// Columns of text under stacked headings: "attention loss" stands on two lines. The first column, and those
/// behind it that are aligned to the left, say what a row is and are always shown; put what readers need
/// first next. A column of sizes ("10.9 MiB") has its unit in the heading, where one serves all.
class TextTable {
 public:
  void add_column(const std::string& heading, Align align) { columns_.push_back({heading, align, {}}); }
  /// One field per column. Colours: `best` rows stand out; rows that have only "-" recede, as do columns of
  /// intervals, whose headings end in low or high.
  void add_row(const std::vector<std::string>& fields, bool best = false);
  void print(std::ostream& out);
  /// The same in parts: the headings, then rows, then which columns there was no room for.
  void print_head(std::ostream& out);
  void print_row(std::ostream& out, std::size_t row) const;
  void print_left_out(std::ostream& out) const;

 private:
  struct Column {
    std::string heading;
    Align align;
    std::vector<std::string> fields;
    std::string name{};  ///< attention_loss
    bool shown = true;
    std::vector<std::string> heading_lines{};
    std::size_t width = 0, tail = 0;  ///< tail: longest part from the decimal point on

    void take_name();
    void lay_out();
    void move_unit();
    std::size_t tail_of(const std::string& field) const;
    std::string padded_heading(const std::string& line) const;
    std::string padded(const std::string& field) const;
  };
  std::size_t naming_columns() const;
  void choose_columns();

  std::vector<Column> columns_;
  std::vector<bool> best_{};  ///< by row
};

/// Codes of terminals for rows and fields that stand out or recede, and back; none is in a text otherwise.
inline constexpr const char *kBestCode = "\x1b[1;32m", *kFaintCode = "\x1b[2m", *kPlainCode = "\x1b[0m";

/// How tables are shown to people: what their terminal has room for, and what they have asked for.
struct TableLook {
  std::size_t width = 0;  ///< characters that a line has room for; 0: any number
  bool wide = false;      ///< all columns, whatever there is room for
  /// Columns to show beside those that say what a row is, as plain_name() understands them; empty: those that
  /// there is room for.
  std::vector<std::string> columns{};
  bool colours = false;           ///< lines may hold codes of colours
  std::set<std::string> there{};  ///< which columns the tables have that were shown, such as attention_loss

  bool asks_for(const std::string& column) const;
  /// Throws Error(usage) if one of `columns` was in no table.
  void check_columns() const;
};

/// The one of this thread. Without a UseTableLook it limits nothing.
TableLook& table_look();

/// Tables of this thread are shown so while it exists.
class UseTableLook {
 public:
  explicit UseTableLook(TableLook& look);
  ~UseTableLook();
  UseTableLook(const UseTableLook&) = delete;
  UseTableLook& operator=(const UseTableLook&) = delete;

 private:
  TableLook* before_;
};

}  // namespace kvsim::analysis
