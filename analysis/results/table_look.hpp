#pragma once
/// How tables are shown to people: what their terminal has room for, and what they have asked for.
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace kvsim::analysis {

struct TableLook {
  std::size_t width = 0;  ///< characters that a line has room for; 0: any number
  bool wide = false;      ///< all columns, whatever there is room for
  /// Columns to show beside those that say what a row is, as plain_name() understands them; empty: those that
  /// there is room for.
  std::vector<std::string> columns{};
  bool colours = false;           ///< lines may hold the codes of text_table.hpp
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
