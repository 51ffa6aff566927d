#pragma once
/// The decisions of a closed loop, in the form of a replay's.
#include "sim/loop/closed_loop.hpp"
#include "sim/replay/decisions.hpp"

namespace kvsim::sim {

/// Returns those of a loop with LoopRequest::decisions over `sequence`: a cell of a request in a mode is a
/// cell of the decisions, modes inside, as rows of answers stand. Step s feeds the token at position prompt -
/// 1 + s; step 0 is there where the last prompt token is asked again.
Decisions decisions_of(const trace::Sequence& sequence, const LoopRequest& request, LoopOutcome outcome);

}  // namespace kvsim::sim
