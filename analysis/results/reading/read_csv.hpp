#pragma once
/// Tables of kvsim read back from csv files, as write_csv wrote them or as others edited them.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Of a table, packed or not.
inline constexpr std::uint64_t kMostTableBytes = 1ULL << 30;

/// RFC 4180 with LF or CRLF; an empty field is undefined. A column holds text if is_text_key() says so or
/// some field is no number. An apostrophe before a text that begins as formulas do is write_csv's own.
/// Written again, the result is what was read, if write_csv wrote that. Throws Error(input) with line and
/// column; `where` names the text in messages.
Records parse_csv(std::string_view text, const std::string& where);

/// The same from a file of at most 1 GiB, which may be compressed by gzip, with expect_columns().
Records read_csv(const std::string& path, const std::vector<ColumnInfo>& expected = {});

}  // namespace kvsim::analysis
