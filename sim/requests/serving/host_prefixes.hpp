#pragma once
/// Blocks of prompts in the host's memory, behind those on the device: what a prompt finds there is copied
/// instead of computed. Which blocks stay is a policy's choice.
#include <cstdint>
#include <optional>

#include "sim/requests/prefix/block_cache.hpp"
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
               const prefix::PrefixTree& tree, std::span<const double> seconds);

  /// Blocks whose time is over leave.
  void advance(double now) { cache_.advance(now); }
  /// Tokens of a prompt that are there from its beginning on, in whole blocks, at most `most`.
  std::uint64_t found(std::uint32_t request, std::uint64_t most) const;
  /// Stores the whole blocks of a request that has ended, at most `tokens` tokens: copies to the host go on
  /// beside the engine's steps, and nothing waits for them.
  void store(std::uint32_t request, std::uint64_t tokens, double now);

 private:
  const requests::RequestTrace& trace_;
  const prefix::PrefixTree& tree_;
  prefix::BlockCache cache_;
  std::uint64_t stored_ = 0;  ///< requests
};

}  // namespace kvsim::serving
