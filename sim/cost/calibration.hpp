#pragma once
/// Fits the ceilings of the user's machine to the times that traces record.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"
#include "traces/format/header.hpp"

namespace kvsim::cost {

// The times of a trace's forward passes on the machine that recorded it.

/// A timed forward pass.
struct TimedPass {
  std::uint64_t tokens = 0, past = 0;  ///< new tokens, and tokens the cache held before
  bool logits = true;                  ///< whether it ended with logits of its last token
  double seconds = 0;                  ///< of the whole pass
  double attention_seconds = 0;        ///< of its attention, all layers; 0: not recorded

  bool decodes() const { return tokens == 1; }
};

struct Recording {
  Model model{};
  Serving serving{};  ///< bits of weights, activations and cache in the run; no workload
  std::vector<TimedPass> passes{};
};
/// Throws Error(input), `where` naming the trace, when it holds no times, no config.json, or times that
/// cannot be: negative, or longer in attention than in all.
Recording recording_of(const trace::Header& header, const std::string& where);

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
