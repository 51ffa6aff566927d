#pragma once
/// What ranks, perhaps on several machines, must agree in before they work on one study: they have planned
/// the same, and they see the same folder. Only the folder of the results must be shared; each rank reads the
/// study file, the model, prompts and given traces where it is, and they must be the same.
#include <chrono>
#include <string>

#include "analysis/study/study_plan.hpp"

namespace kvsim::analysis {

/// For how long a rank waits until it sees a file that another has written: NFS shows it up to a minute late.
inline constexpr std::chrono::seconds kLateness{120};

/// Of everything that a plan says to do, of the contents that it reads, as far as they were read, and of the
/// kvsim that made it. A hexadecimal number.
std::string plan_digest(const StudyPlan& plan);

/// Of the study.json of a folder. Empty: there is none.
std::string study_digest(const std::string& folder);

}  // namespace kvsim::analysis
