#pragma once
/// Hits of prefix caches as tidy tables, and as people read them.
#include <iosfwd>
#include <vector>

#include "analysis/requests/hit_rows.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// What the table of hits is called where several tables are read.
inline constexpr const char* kHitsTable = "hits";

const std::vector<ColumnInfo>& hit_columns();
Records hit_records(const std::vector<HitRow>& rows);
Records request_hit_records(const std::vector<RequestHit>& hits, const requests::RequestTrace& trace);

/// For people: capacities down, policies across, the share of prompt tokens that hits; with a model on a
/// machine the share of prefill seconds that is saved, too. With parts a line for each of them.
void write_hit_table(std::ostream& out, const HitGrid& grid, const std::vector<HitRow>& rows);

}  // namespace kvsim::analysis
