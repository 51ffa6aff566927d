#pragma once
/// Tables of kinds of analysis, as figures take them: one number for all traces.
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Rows that agree in the columns `by` become one, in order of first appearance: `by`, then the mean of each
/// column of `values` over the rows that have one (undefined if none has), all described as in `records`.
Records trace_means(const Records& records, const std::vector<std::string>& by,
                    const std::vector<std::string>& values);

/// "one trace", "mean over 24 traces", "mean over 6 traces of copy"; `workload` "all" or empty: of any.
std::string traces_text(std::uint64_t traces, const std::string& workload = "");

/// What is to be said beside such means: over how many traces they are, and whether some have no value.
/// Empty when there is one trace and nothing is missing.
std::string means_remark(const Records& records, const std::vector<std::string>& values);

/// "kvsim analyze KIND run.h5": what makes the table again, up to its settings.
std::string analyze_command(const std::string& kind, const Records& records);

}  // namespace kvsim::analysis
