#include "sim/requests/serving/engine_cache.hpp"

#include "sim/base/error.hpp"

namespace kvsim::serving {

prefix::BlockCache engine_cache(const policy::Part& policy, std::uint64_t tokens,
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
