#pragma once
/// Rows of a replay as people read them.
#include <iosfwd>
#include <vector>

#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// Rows grouped by budget, constant columns named above, `*` at the policy that loses least of those that
/// kept to the budget, notes below. Columns are the metrics with a Console heading. Rows of scope step are
/// one line per cell, with attention loss at the first steps, then ever fewer, and the last. Of several
/// traces, the rows of each budget end with their means.
void write_console_table(std::ostream& out, const std::vector<Row>& rows);

}  // namespace kvsim::analysis
