#pragma once
/// What commands write of costs.
#include <string>
#include <vector>

#include "analysis/cost/cost_study.hpp"
#include "analysis/results/document.hpp"
#include "tools/options/output_options.hpp"

namespace kvsim::tools {

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
