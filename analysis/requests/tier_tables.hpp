#pragma once
/// What prompts find in the tiers as a tidy table; that, and where loading is faster than computing, as
/// people read it.
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "analysis/requests/break_even.hpp"
#include "analysis/requests/tier_rows.hpp"

namespace kvsim::analysis {

/// What the table is called where several tables are read.
inline constexpr const char* kTiersTable = "tiers";

const std::vector<ColumnInfo>& tier_columns();
Records tier_records(const TierGrid& grid, const std::vector<TierRow>& rows);

/// Lines above a table: a name and what it is.
using TableHead = std::vector<std::pair<std::string, std::string>>;

/// What all plans agree in stands above the table.
void write_tier_table(std::ostream& out, TableHead head, const TierGrid& grid,
                      const std::vector<TierRow>& rows);

/// A table for each case and tier.
void write_break_even_table(std::ostream& out, const BreakEvenGrid& grid,
                            const std::vector<BreakEvenRow>& rows);

/// "52 GB/s, 6 us".
std::string link_text(const cost::Link& link);

}  // namespace kvsim::analysis
