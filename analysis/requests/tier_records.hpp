#pragma once
/// What prompts find in the tiers as a tidy table.
#include <vector>

#include "analysis/requests/tier_rows.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// What the table is called where several tables are read.
inline constexpr const char* kTiersTable = "tiers";

const std::vector<ColumnInfo>& tier_columns();
Records tier_records(const TierGrid& grid, const std::vector<TierRow>& rows);

}  // namespace kvsim::analysis
