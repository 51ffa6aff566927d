#pragma once
/// Blocks of prompts in the host's memory, behind those on the device: what a prompt finds there is copied
/// instead of computed. Which blocks stay is a policy's choice.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "sim/requests/prefix/block_cache.hpp"
#include "sim/requests/serving/engine_cache.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

struct HostCacheSettings {
  std::optional<policy::Part> policy{};  ///< a replacement; nothing: there is no such cache
  std::uint64_t tokens = 0;              ///< that it holds
};

class HostPrefixes {
 public:
  /// Throws Error(usage) as engine_cache().
  HostPrefixes(const HostCacheSettings& settings, const requests::RequestTrace& trace,
               const prefix::PrefixTree& tree, std::span<const double> seconds)
      : trace_(trace),
        tree_(tree),
        // More than all different blocks is as good as these.
        cache_(engine_cache(*settings.policy,
                            std::min<std::uint64_t>(
                                settings.tokens, std::max<std::size_t>(tree.size(), 1) * trace.block_tokens),
                            trace, tree, seconds, "cache on the host")) {}

  /// Blocks whose time is over leave.
  void advance(double now) { cache_.advance(now); }
  /// Tokens of a prompt that are there from its beginning on, in whole blocks, at most `most`.
  std::uint64_t found(std::uint32_t request, std::uint64_t most) const {
    const std::span<const prefix::Node> prompt = tree_.prompt(request);
    const std::uint64_t blocks = std::min<std::uint64_t>(prompt.size(), most / trace_.block_tokens);
    return cache_.leading_run(prompt.first(blocks)) * trace_.block_tokens;
  }
  /// Stores the whole blocks of a request that has ended, at most `tokens` tokens: copies to the host go on
  /// beside the engine's steps, and nothing waits for them.
  void store(std::uint32_t request, std::uint64_t tokens, double now) {
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

 private:
  const requests::RequestTrace& trace_;
  const prefix::PrefixTree& tree_;
  prefix::BlockCache cache_;
  std::uint64_t stored_ = 0;  ///< requests
};

}  // namespace kvsim::serving
