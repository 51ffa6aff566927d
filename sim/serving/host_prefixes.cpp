#include "sim/serving/host_prefixes.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::serving {
namespace {

prefix::BlockCache cache_of(const HostCacheSettings& settings, const requests::RequestTrace& trace,
                            const prefix::PrefixTree& tree) {
  const std::uint64_t blocks = settings.tokens / trace.block_tokens;
  if (blocks == 0)
    usage_error("memory for " + std::to_string(settings.tokens) + " tokens, and a block of the trace has " +
                    std::to_string(trace.block_tokens),
                "cache on the host", "give more memory");
  // More than there are different blocks is as good as all of them.
  prefix::BlockCache cache(
      *settings.policy,
      prefix::block_space(tree, std::min<std::uint64_t>(blocks, std::max<std::size_t>(tree.size(), 1)), {},
                          trace.categories.size()));
  if (cache.knows_future())
    usage_error("knows the future, which depends on how long requests wait", settings.policy->text(),
                "kvsim requests replay takes it");
  return cache;
}

}  // namespace

HostPrefixes::HostPrefixes(const HostCacheSettings& settings, const requests::RequestTrace& trace,
                           const prefix::PrefixTree& tree)
    : trace_(trace), tree_(tree), cache_(cache_of(settings, trace, tree)) {}

std::uint64_t HostPrefixes::found(std::size_t request, std::uint64_t most) const {
  const std::span<const prefix::Node> prompt = tree_.prompt(request);
  const std::uint64_t blocks = std::min<std::uint64_t>(prompt.size(), most / trace_.block_tokens);
  return cache_.leading_run(prompt.first(blocks)) * trace_.block_tokens;
}

void HostPrefixes::store(std::uint32_t request, std::uint64_t tokens, double now) {
  const requests::Request& asked = trace_.requests[request];
  const bool final = asked.n_final_blocks > 0;
  const std::span<const prefix::Node> path = final ? tree_.final_path(request) : tree_.prompt(request);
  const std::uint64_t whole =
      (final ? tokens : std::min<std::uint64_t>(tokens, asked.prompt_tokens)) / trace_.block_tokens;
  if (whole == 0) return;
  cache_.request({.number = stored_++,
                  .time_s = now,
                  .category = asked.category,
                  .priority = asked.priority,
                  .path = path.first(std::min<std::uint64_t>(whole, path.size()))});
}

}  // namespace kvsim::serving
