#pragma once
/// Paged memory in which blocks of prompts are shared by running sequences and stay for later ones.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/requests/prefix/block_cache.hpp"
#include "sim/requests/serving/allocators/allocator.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

/// Whole blocks of the trace alone are shared. A block that a sequence has computed becomes a node of the
/// tree; if another one has computed the same meanwhile, the copy is free again. The nodes that running
/// sequences have are held; when memory is short, others leave as the policy says. It is told of a sequence
/// when that leaves, also when it is preempted: of the blocks that it had, the last one first, those that the
/// policy does not know yet are stored, and the others used.
class PrefixMemory final : public Allocator {
 public:
  /// Throws Error(usage) as engine_cache(), and for policies that keep blocks for good. All must outlive it.
  PrefixMemory(const policy::Part& policy, const requests::RequestTrace& trace,
               const prefix::PrefixTree& tree, std::span<const double> seconds, std::uint64_t capacity,
               std::uint32_t places);

  /// How many prompts that wait the policy looks at.
  std::size_t lookahead() const { return cache_.lookahead(); }
  /// What it is told with the sequences that leave from now on: the time, which never falls, and the prompts
  /// that wait, the next one first.
  void set_now(double now, std::vector<std::span<const prefix::Node>> waiting) {
    now_ = now;
    waiting_ = std::move(waiting);
  }
  /// Blocks whose time is over leave.
  void advance(double now);

  /// Tokens of a prompt that are there from its beginning on, in whole blocks, at most `most`.
  std::uint64_t found(std::uint32_t request, std::uint64_t most) const;
  /// Allocator::enter for a sequence that begins with those tokens: returns how many they are, or nothing
  /// where there is no room for `tokens` tokens.
  std::optional<std::uint64_t> enter_behind(Place place, std::uint32_t request, std::uint64_t most,
                                            std::uint64_t tokens);
  /// Says that the first `tokens` tokens of the sequence are there, all of them of the prompt.
  void computed(Place place, std::uint32_t request, std::uint64_t tokens);
  /// Says the same of prompt and generated tokens whose blocks the trace knows.
  void ended(Place place, std::uint32_t request, std::uint64_t tokens);

  std::uint64_t longest() const override { return cache_.capacity() * block_; }
  /// Every block is taken as lying alone.
  std::vector<Run> runs(Place place, std::uint64_t tokens) const override;
  MemoryUse use() const override;

 protected:
  bool reserve(Place place, std::uint64_t tokens) override { return extend(place, tokens); }
  bool extend(Place place, std::uint64_t tokens) override;
  void release(Place place) override;

 private:
  using Node = prefix::Node;

  /// A sequence's blocks: leading ones that are nodes, and those behind them.
  struct Table {
    std::uint32_t request = 0;
    std::vector<Node> shared{};
    std::uint64_t own = 0;
  };

  std::uint64_t blocks_of(std::uint64_t tokens) const { return cost::ceil_divided(tokens, block_); }
  void share(Place place, std::uint32_t request, std::span<const Node> path, std::uint64_t blocks);

  const requests::RequestTrace& trace_;
  const prefix::PrefixTree& tree_;
  const std::uint64_t block_;
  prefix::BlockCache cache_;
  std::vector<Table> tables_;
  std::uint64_t shared_blocks_ = 0;  ///< of all tables, common ones as often as they are shared
  std::uint64_t told_ = 0;           ///< sequences
  double now_ = 0;
  std::vector<std::span<const Node>> waiting_{};
};

// Caches of prompts' blocks as engines have them: under any policy that needs no future.

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

/// Blocks of prompts in the host's memory, behind those on the device: what a prompt finds there is copied
/// instead of computed. Which blocks stay is a policy's choice.
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
