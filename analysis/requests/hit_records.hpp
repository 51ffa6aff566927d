#pragma once
/// Hits of prefix caches as tidy tables.
#include <vector>

#include "analysis/requests/hit_rows.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// What the table of hits is called where several tables are read.
inline constexpr const char* kHitsTable = "hits";

const std::vector<ColumnInfo>& hit_columns();
Records hit_records(const std::vector<HitRow>& rows);
Records request_hit_records(const std::vector<RequestHit>& hits, const requests::RequestTrace& trace);

}  // namespace kvsim::analysis
