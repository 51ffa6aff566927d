#pragma once
/// What the answers of the closed loop say of policies, in sentences.
#include "analysis/report/answer_evidence.hpp"
#include "analysis/report/findings.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/full_cache_gate.hpp"

namespace kvsim::analysis {

/// The best policies by answers at each budget, and where attention loss picks another; nothing without
/// answers.
Findings what_answers_say(const AnswerEvidence& answers, const PriceList& prices = {});
/// Where the policy that loses least attention is not the one that answers best, and what that costs.
Findings picked_by_loss(const AnswerEvidence& answers);
/// Workloads whose full cache answers less than `least_full` of the items, which rank no policy.
Findings failed_workloads(const std::vector<FullAnswers>& accuracies, double least_full);

}  // namespace kvsim::analysis
