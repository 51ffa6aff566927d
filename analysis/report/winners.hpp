#pragma once
/// The table `winners` of a study: which policy is best at each budget, how sure that is, and what it costs.
#include <iosfwd>
#include <vector>

#include "analysis/report/evidence.hpp"
#include "analysis/report/html.hpp"
#include "analysis/report/reported_study.hpp"

namespace kvsim::analysis {

inline constexpr const char* kWinnersTable = "winners";

const std::vector<ColumnInfo>& winners_columns();

/// One row per cut, metric and budget, budgets by size: by right answers (their KL where no answer was
/// judged), by the leading metric of the replays, and by attention loss. Prices are those of the longest
/// prompt that was priced.
Records winners(const std::vector<Evidence>& cuts, const PriceList& prices);

/// The same for people. Columns without a number are left out.
SortableTable winners_for_people(const Records& winners);
/// That table as text.
void write_winners(std::ostream& out, const Records& winners);

}  // namespace kvsim::analysis
