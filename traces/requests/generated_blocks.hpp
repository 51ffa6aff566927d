#pragma once
/// What is known of the blocks of generated tokens, and of those that are not full.
#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

/// Reads generated blocks off the next turn: its prompt begins with the prompt and the answer before it. A
/// request whose next turn's prompt begins with all whole blocks of its own gets the next one's blocks as
/// far as prompt and answer fill them. Turns are those of the trace (Request::parent). In a trace without
/// any, a request is taken for the next turn of the latest earlier one whose whole blocks, at least one, are
/// the longest that its prompt begins with. Of several next turns the first counts. Last turns keep unknown
/// answers. Does nothing where the trace says generated blocks itself; throws Error(usage) for a trace
/// without blocks.
void infer_generated(RequestTrace& trace);

/// Takes away what is known of generated blocks.
void forget_generated(RequestTrace& trace);

/// Takes the blocks away that are not full: engines compute and keep whole ones.
void forget_tails(RequestTrace& trace);

}  // namespace kvsim::requests
