#pragma once
#include <string>
#include <vector>

#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// A line for each reason that cells were skipped for: "snapkv, h2o at 10%: REASON". Traces and cuts are
/// named where there are several.
std::vector<std::string> skipped_cells(const std::vector<Row>& rows);

}  // namespace kvsim::analysis
