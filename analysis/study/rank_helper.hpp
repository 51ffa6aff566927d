#pragma once
/// The other ranks of a study: they plan it, see that they see the same as rank 0, and do the jobs that it
/// gives.
#include <chrono>
#include <functional>

#include "analysis/study/ranks.hpp"
#include "analysis/study/run_study.hpp"
#include "analysis/study/same_study.hpp"

namespace kvsim::analysis {

/// Serves rank 0 until it ends the study, and returns the exit code of all ranks. `make_plan`: the plan, as
/// rank 0 makes it. Whatever fails here is told by rank 0. Work stops once progress.stop is set, and so does
/// the study. `lateness`: how long to wait for what rank 0 has written.
int help_with_study(Ranks& ranks, const std::function<StudyPlan()>& make_plan, const RunOptions& options,
                    Progress& progress, std::chrono::milliseconds lateness = kLateness);

}  // namespace kvsim::analysis
