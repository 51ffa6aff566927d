#pragma once
/// Paged memory in which blocks of prompts are shared by running sequences and stay for later ones.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

}  // namespace kvsim::serving
