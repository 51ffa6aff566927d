#pragma once
/// What commands write of costs: lines above them, settings, notes, and the whole.
#include <string>
#include <utility>
#include <vector>

#include "analysis/cost/cost_fit.hpp"
#include "analysis/results/document.hpp"
#include "tools/options/output_options.hpp"

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

/// Lines above a table: model, machine, serving, offloading if there is some, and `more`.
std::vector<std::string> cost_head(const analysis::CostStudy& study, const std::vector<std::string>& more);

/// Settings of the study; records and notes are the caller's.
analysis::Document cost_document(const analysis::CostStudy& study);

/// Throws, before any work, unless the results can be written where they were asked for.
void check_cost_output(const OutputOptions& options);

/// Writes the results. Their notes stand in the table for people; beside other formats they go to standard
/// error, unless `quiet`.
void commit_costs(const OutputOptions& options, bool quiet, const analysis::Document& document);

}  // namespace kvsim::tools
