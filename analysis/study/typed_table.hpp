#pragma once
/// Tables as a study keeps them between two runs: CSV from which every field comes back with its type and
/// every number with its bits. Text stands in quotes, real numbers have a point or an exponent, whole numbers
/// neither, undefined is empty.
#include <string>
#include <string_view>

#include "analysis/records.hpp"

namespace kvsim::analysis {

/// A line of keys, then the rows.
std::string typed_text(const Records& records);

/// Rows of such a text under `columns`. Throws Error(input) naming `where` and the line when it is none, or
/// its keys are not those of `columns`.
std::vector<std::vector<Value>> typed_rows(std::string_view text, const std::vector<ColumnInfo>& columns,
                                           const std::string& where);

}  // namespace kvsim::analysis
