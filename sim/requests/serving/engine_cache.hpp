#pragma once
/// Caches of prompts' blocks as engines have them: under any policy that needs no future.
#include "sim/requests/prefix/block_cache.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

/// `tokens`: that the cache holds, in whole blocks of the trace. `seconds`: of computing a block, by its
/// depth, for policies of cost; empty: 1 at every depth. They and the tree outlive the cache. `where`: what
/// messages call it. Throws Error(usage) for what is no replacement, for policies that know the future, and
/// for a memory without a block.
prefix::BlockCache engine_cache(const policy::Part& policy, std::uint64_t tokens,
                                const requests::RequestTrace& trace, const prefix::PrefixTree& tree,
                                std::span<const double> seconds, const char* where);

}  // namespace kvsim::serving
