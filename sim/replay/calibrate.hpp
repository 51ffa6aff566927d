#pragma once
/// Measures what a policy learns of other runs.
#include <span>
#include <string>

#include "policies/api/spec.hpp"
#include "sim/base/progress.hpp"
#include "sim/replay/calibration_tables.hpp"

namespace kvsim::sim {

struct CalibrationRun {
  std::string name;
  const trace::Sequence* sequence;
};

/// Reads keys and values of every token of the runs once, layer by layer, and queries where the calibrator
/// needs them. `codec` has a calibrator. Throws Error(usage) when runs are of models of different shapes or
/// lack queries, Error(input) for numbers that are not finite, Error(interrupted).
Calibration calibrate(const policy::Part& codec, std::span<const CalibrationRun> runs, Progress& progress);

}  // namespace kvsim::sim
