#pragma once
/// Ceilings of the user's machine from the times that traces record.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "traces/header.hpp"

namespace kvsim::cost {

/// A timed forward pass.
struct TimedPass {
  std::uint64_t new_tokens = 0, past_tokens = 0;
  double seconds = 0;            ///< of the whole pass
  double attention_seconds = 0;  ///< of its attention, all layers; 0: not recorded
};
/// Those of a trace with a duration. Throws Error(input) when it has none.
std::vector<TimedPass> timed_passes(const trace::Header& header, const std::string& name);

struct Calibration {
  Ceilings ceilings{};
  double matrix_rate = 0, bandwidth = 0;   ///< rates reached, if the machine's own are not known
  std::uint64_t fitted = 0, held_out = 0;  ///< passes
  // Mean absolute relative errors of pass times.
  double fitted_error = 0;
  double held_out_prefill_error = 0, held_out_decode_error = 0, held_out_error = 0;
};
/// Fits to every pass but each fifth, which is held out. Deterministic. Throws Error(usage) when there are
/// too few passes, or only of one kind (prefill or decode).
Calibration calibrate(const Model& model, const Machine& machine, std::span<const TimedPass> passes);

}  // namespace kvsim::cost
