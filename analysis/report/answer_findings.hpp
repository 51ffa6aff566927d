#pragma once
/// What the answers of the closed loop say of policies, in sentences.
#include "analysis/report/findings.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/full_cache_gate.hpp"

namespace kvsim::analysis {

/// Workloads whose full cache answers less than `least_full` of the items, which rank no policy.
Findings failed_workloads(const std::vector<FullAnswers>& accuracies, double least_full);

}  // namespace kvsim::analysis
