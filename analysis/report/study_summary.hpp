#pragma once
/// What a study was about, told from its results.
#include <string>
#include <utility>
#include <vector>

#include "analysis/report/reported_study.hpp"
#include "analysis/report/sortable_table.hpp"

namespace kvsim::analysis {

/// Name and text of each, names in `backquotes`; text is empty where nothing is known.
std::vector<std::pair<std::string, std::string>> study_facts(const ReportedStudy& study);

/// Every trace: workload, lengths, content.
SortableTable trace_table(const ReportedStudy& study);

/// Every policy: label, role, composition with all parameters.
SortableTable policy_table(const ReportedStudy& study);

}  // namespace kvsim::analysis
