#pragma once
/// What is said about estimates besides their numbers.
#include <string>
#include <utility>
#include <vector>

#include "analysis/cost/cost_fit.hpp"

namespace kvsim::tools {

/// "prompt 32768, generate 256, batch 1; cache fp16, 131072 bytes per token; flash attention".
std::string described(const analysis::CostStudy& study);
/// "memory 80 GiB, TTFT 2 s".
std::string described(const cost::Offload& offload, const cost::Machine& machine);
std::string described(const analysis::CostLimits& limits);

/// Everything the rows depend on that no column says.
std::vector<std::pair<std::string, analysis::Value>> settings_of(const analysis::CostStudy& study);

/// How far to trust them: points that could not be, contexts beyond the model's, splits that only a trace
/// tells, score matrices that are written.
std::vector<std::string> notes_of(const analysis::CostStudy& study,
                                  const std::vector<analysis::CostRow>& rows);

}  // namespace kvsim::tools
