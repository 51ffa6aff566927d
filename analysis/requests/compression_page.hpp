#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "analysis/requests/compression_rows.hpp"

namespace kvsim::analysis {

/// For people: a line per engine, by rate and memory.
void write_compression_table(std::ostream& out, const CompressionGrid& grid,
                             const std::vector<CompressionRow>& rows);
/// The same as a page: what is compared, the table, how to read it, what it rests on. `file`: of the trace.
void write_compression_page(std::ostream& out, const CompressionGrid& grid,
                            const std::vector<CompressionRow>& rows, const std::string& file);

/// "snapkv 25%"; "-" without a policy.
std::string compression_label(const CompressionRow& row);

}  // namespace kvsim::analysis
