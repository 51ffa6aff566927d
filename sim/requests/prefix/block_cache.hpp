#pragma once
/// One prefix cache: a capacity in blocks, a replacement policy and what is resident, driven request by
/// request. A replay of hits drives it with requests that take no time; a simulation of queues pins what
/// runs.
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policies/api/replacement.hpp"
#include "policies/api/spec.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::prefix {

// How long blocks stay in a cache, and how they are used there: times in seconds, as sums and as histograms.

/// Counts of times by powers of two of milliseconds: bin 0 holds those below 1 ms, bin i those from 2^(i-1)
/// ms to below 2^i ms, the last one all that are longer.
struct Durations {
  static constexpr std::size_t kBins = 40;
  std::array<std::uint64_t, kBins> bins{};
  std::uint64_t count = 0;
  double sum_s = 0;

  void add(double seconds) {
    ++count;
    sum_s += seconds;
    const double ms = seconds * 1000;
    const std::size_t bin = ms < 1         ? 0
                            : ms >= 0x1p38 ? kBins - 1
                                           : std::bit_width(static_cast<std::uint64_t>(ms));
    ++bins[bin];
  }
};

struct Residency {
  Durations lifetime{};   ///< from being stored to being evicted, of evicted blocks
  Durations idle{};       ///< from the last use to being evicted
  Durations reuse_gap{};  ///< from one use to the next, of resident blocks
};

/// What a cache can hold: of a tree. `seconds`, of recomputing a block by its depth, is for policies of cost;
/// it is empty or reaches the deepest block. What the spans point to outlives the caches.
policy::BlockSpace block_space(const PrefixTree& tree, std::size_t capacity,
                               std::span<const double> seconds = {}, std::size_t categories = 0);

class BlockCache {
 public:
  /// Throws Error(usage) for a policy that is not a replacement, one without a rule for nodes where
  /// space.nodes, a capacity of 0, and seconds that do not reach the deepest block.
  BlockCache(const policy::Part& policy, const policy::BlockSpace& space, bool residency = false);

  /// Blocks whose time is over leave: before a request looks for its own.
  void advance(double time_s);
  /// How many blocks of the path are resident from the first one on: what a request need not compute.
  std::size_t leading_run(std::span<const Node> path) const;
  /// How many are resident at all: those behind the leading run cannot be used.
  std::size_t present(std::span<const Node> path) const;
  bool resident(Node node) const { return store_.resident(node); }

  /// Touches the resident blocks of view.path and stores the others, the last block first. Its own blocks do
  /// not displace one another; where not all fit beside pinned ones, the first are stored and the rest is
  /// left out. Numbers and times of views never fall.
  void request(const policy::RequestView& view);
  /// The blocks that the last request(), advance() or take() displaced, in order.
  std::span<const Node> evicted() const { return store_.evicted(); }

  /// Blocks are held, each as often as it is pinned, until they are unpinned. Those that are not resident are
  /// kept out of it: pin() returns how many blocks from the first on it holds, and unpin() is given these.
  std::size_t pin(std::span<const Node> path);
  void unpin(std::span<const Node> path);

  // An engine's memory has blocks of prompts and, of running requests, those that are none yet.

  /// Takes room for so many blocks, evicting what is not held; false, and nothing is changed, where there is
  /// not enough.
  bool take(std::size_t blocks);
  void give_back(std::size_t blocks) { store_.give_back(blocks); }
  std::size_t taken() const { return store_.taken(); }
  /// A running request has computed this block in room that it took. The block is resident and held from now
  /// on; if it was resident already, the room is free again. The policy is told of it by request(), which the
  /// request must be named to before its block is unpinned.
  void computed(Node node);

  std::size_t size() const { return store_.size(); }
  std::size_t capacity() const { return store_.capacity(); }
  std::size_t pinned() const { return pinned_; }  ///< different blocks that are held
  std::uint64_t stored() const { return store_.stored(); }
  std::uint64_t evictions() const { return evictions_; }
  /// How many waiting prompts the policy looks at, for RequestView::waiting.
  std::size_t lookahead() const { return policy_->lookahead(); }
  bool knows_future() const { return policy_->knows_future(); }
  bool keeps_for_good() const { return policy_->keeps_for_good(); }
  const Residency& residency() const { return residency_; }

 private:
  void note_use(Node node, double time_s);
  void note_evictions(double time_s);

  policy::BlockStore store_;
  std::unique_ptr<policy::Replacement> policy_;
  std::size_t pinned_ = 0;
  std::uint64_t evictions_ = 0;
  bool pins_changed_ = false;  ///< since the policy last looked
  double now_s_ = 0;
  bool notes_;
  std::vector<double> stored_s_, used_s_;  ///< of every block, when residency is asked for
  Residency residency_{};
};

}  // namespace kvsim::prefix
