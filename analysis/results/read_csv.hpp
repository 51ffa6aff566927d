#pragma once
/// Tables of kvsim read back from csv files, as write_csv wrote them or as others edited them.
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Whether a column holds text even where it looks like a number: names and budgets. The one list of them;
/// any other column holds text only if some field of it is no number.
bool is_text_key(std::string_view key);

/// A field of such a column; nothing: undefined.
Value text_field(std::string field);
/// A finite number, whole ones as counts; nothing: not a number.
std::optional<Value> number_field(std::string_view field);

/// RFC 4180 with LF or CRLF; an empty field is undefined. Columns of `expected` must be there, in any order,
/// and hold numbers unless is_text_key(); their units and descriptions are taken from it. Written again, the
/// result is what was read, if write_csv wrote that. Throws Error(input) with line and column; `where` names
/// the text in messages.
Records parse_csv(std::string_view text, const std::string& where,
                  const std::vector<ColumnInfo>& expected = {});

/// The same from a file of at most 1 GiB.
Records read_csv(const std::string& path, const std::vector<ColumnInfo>& expected = {});

}  // namespace kvsim::analysis
