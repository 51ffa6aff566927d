#pragma once
/// Caches of prompts' blocks as engines have them: under any policy that needs no future.
#include "sim/base/error.hpp"
#include "sim/requests/prefix/block_cache.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

/// `tokens`: that the cache holds, in whole blocks of the trace. `seconds`: of computing a block, by its
/// depth, for policies of cost; empty: 1 at every depth. They and the tree outlive the cache. `where`: what
/// messages call it. Throws Error(usage) for what is no replacement, for policies that know the future, and
/// for a memory without a block.
inline prefix::BlockCache engine_cache(const policy::Part& policy, std::uint64_t tokens,
                                       const requests::RequestTrace& trace, const prefix::PrefixTree& tree,
                                       std::span<const double> seconds, const char* where) {
  const std::uint64_t blocks = tokens / trace.block_tokens;
  if (blocks == 0)
    usage_error("memory for " + std::to_string(tokens) + " tokens, and a block of the trace has " +
                    std::to_string(trace.block_tokens),
                where, "give more memory");
  prefix::BlockCache cache(policy, prefix::block_space(tree, blocks, seconds, trace.categories.size()));
  if (cache.knows_future())
    usage_error("knows the future, which depends on how long requests wait", policy.text(),
                "kvsim requests replay takes it");
  return cache;
}

}  // namespace kvsim::serving
