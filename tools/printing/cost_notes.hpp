#pragma once
/// The settings and notes that commands print with cost estimates.
#include <string>
#include <utility>
#include <vector>

#include "analysis/cost/cost_fit.hpp"

namespace kvsim::tools {

/// "prompt 32768, generate 256, batch 1; cache fp16, 131072 bytes per token; flash attention".
std::string described(const analysis::CostStudy& study);
/// Lines of what is not on the device and how it gets there; none where everything is.
std::vector<std::string> described(const cost::Offload& offload, const cost::Machine& machine);
/// "memory 80 GiB, TTFT 2 s".
std::string described(const analysis::CostLimits& limits);

/// Every setting that the rows depend on and no column states.
std::vector<std::pair<std::string, analysis::Value>> settings_of(const analysis::CostStudy& study);

/// Notes on the validity of the rows: skipped points, contexts beyond the model's, splits that only a trace
/// can tell, score matrices that are written to memory.
std::vector<std::string> notes_of(const analysis::CostStudy& study,
                                  const std::vector<analysis::CostRow>& rows);

}  // namespace kvsim::tools
