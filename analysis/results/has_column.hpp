#pragma once
#include <algorithm>
#include <string_view>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Whether a table has a column of this key; tables of older versions lack some.
inline bool has_column(const Records& table, std::string_view key) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [&](const ColumnInfo& column) { return column.key == key; });
}

}  // namespace kvsim::analysis
