#pragma once
/// What a study will take, told before it is begun.
#include <cstdint>
#include <iosfwd>

#include "tools/study/study_plan.hpp"

namespace kvsim::tools {

/// Prints numbers of traces, tasks and cells, and estimates of memory and time. The shortest trace is
/// captured (if it is one to capture) and run through all its tasks in a temporary folder: the others are
/// estimated from that by their lengths. Nothing is written into the study's folder.
void print_estimate(std::ostream& out, const StudyPlan& plan, unsigned threads, bool quiet);

}  // namespace kvsim::tools
