#pragma once
/// A trace with the sharing and the arrivals of another one, for those who cannot give theirs away.
#include <cstdint>

#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

/// Kept exactly: times, sessions, parents, turns, categories and priorities; which blocks requests share with
/// each other, in which order and when, hence the tree but for blocks that a single prompt has, every reuse
/// gap, and the number of prompt tokens that a cache without limits would hit.
/// Made anew from `seed`: ids (0, 1, 2, ... as they occur); the lengths of what a prompt has alone behind its
/// shared blocks, dealt out among the requests again, apart for those with less than a block and the others,
/// so that their distribution, the number of blocks and of tokens stay; and the lengths of answers, dealt out
/// among all requests. Generated blocks are unknown afterwards.
/// Throws Error(usage) for a trace without blocks.
RequestTrace like_requests(const RequestTrace& trace, std::uint64_t seed);

}  // namespace kvsim::requests
