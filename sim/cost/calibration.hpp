#pragma once
/// Fits the ceilings of the user's machine to the times that traces record.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "sim/cost/machine.hpp"
#include "sim/cost/recording.hpp"

namespace kvsim::cost {

/// Mean absolute relative errors of pass times; empty where there is no such pass.
struct PassErrors {
  std::uint64_t prefill_passes = 0, decode_passes = 0;
  std::optional<double> prefill{}, decode{}, all{};
};

struct Calibration {
  Machine machine{};  ///< the base with the fitted ceilings
  PassErrors fitted{}, held_out{};
};

/// Returns a machine with unknown rates: placeholders that calibrate() replaces by the rates reached.
Machine unknown_machine(const std::string& name, std::uint64_t memory);

/// Fits compute, memory and launch, of attention and of the rest, to every pass but each fifth prefill and
/// each fifth decode pass, by relative error: every prompt token has equal weight, and prefill and decode
/// have the same weight, and errors above 5 % count linearly (Huber), since a pass may have been interrupted.
/// The norm and the rows of an attention tile are the best of a few candidates. What the passes do not
/// determine stays as in the base machine: launches where all passes are of one model (they cost what reading
/// its weights costs), the launch of attention where attention was not timed separately or no decode step
/// sees twice the tokens of another, the share of element-wise operations in the rest. Rates reached above
/// the base's raise it. Deterministic. Throws
/// Error(usage) for fewer than 4 prefill or 4 decode passes besides those held out, or all of one length.
Calibration calibrate(std::span<const Recording> recordings, const Machine& base);

}  // namespace kvsim::cost
