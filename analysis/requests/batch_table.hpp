#pragma once
/// Batches as people read them.
#include <iosfwd>
#include <vector>

#include "analysis/requests/batch_records.hpp"

namespace kvsim::analysis {

void write_batch_table(std::ostream& out, const BatchGrid& grid, const std::vector<BatchRow>& rows);

}  // namespace kvsim::analysis
