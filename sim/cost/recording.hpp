#pragma once
/// The times of a trace's forward passes on the machine that recorded it.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"
#include "traces/format/header.hpp"

namespace kvsim::cost {

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

}  // namespace kvsim::cost
