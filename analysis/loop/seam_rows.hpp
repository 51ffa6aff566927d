#pragma once
/// Tidy rows of how far assembled prompts are from the ones that are read whole (sim/replay/seam_errors.hpp).
#include <span>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/replay/seam_errors.hpp"
#include "traces/capture/workload_item.hpp"

namespace kvsim::analysis {

const std::vector<ColumnInfo>& seam_columns();

std::vector<std::vector<Value>> seam_rows(const capture::WorkloadItem& item, const std::string& model,
                                          const std::string& prefill, std::span<const sim::SeamError> errors);

}  // namespace kvsim::analysis
