#include "sim/requests/serving/host_prefixes.hpp"

#include <algorithm>

#include "sim/requests/serving/engine_cache.hpp"

namespace kvsim::serving {
HostPrefixes::HostPrefixes(const HostCacheSettings& settings, const requests::RequestTrace& trace,
                           const prefix::PrefixTree& tree, std::span<const double> seconds)
    : trace_(trace),
      tree_(tree),
      // More than all different blocks is as good as these.
      cache_(engine_cache(*settings.policy,
                          std::min<std::uint64_t>(settings.tokens,
                                                  std::max<std::size_t>(tree.size(), 1) * trace.block_tokens),
                          trace, tree, seconds, "cache on the host")) {}

std::uint64_t HostPrefixes::found(std::uint32_t request, std::uint64_t most) const {
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
