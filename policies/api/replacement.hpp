#pragma once
/// Which blocks of a prefix cache give way to others. A block is the keys and values of a fixed number of
/// tokens behind one particular prefix; blocks are numbered densely, so the state of a policy is arrays and
/// lists in arrays.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace kvsim::policy {

using Block = std::uint32_t;
inline constexpr Block kNoBlock = std::numeric_limits<Block>::max();
inline constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

/// What does not change during a run.
struct BlockSpace {
  std::size_t blocks = 0;                   ///< how many different ones there are: numbers 0 ... blocks - 1
  std::size_t capacity = 0;                 ///< how many fit, at least 1
  std::span<const Block> parents{};         ///< of every block; kNoBlock of first ones
  std::span<const std::uint32_t> depths{};  ///< of every block: how many stand before it
  std::span<const double> seconds{};        ///< of recomputing a block, by depth; empty: 1 at every depth
  std::size_t categories = 0;               ///< of requests
  /// Whole nodes of the radix tree of what is resident are evicted, and not single blocks.
  bool nodes = false;

  double seconds_of(Block block) const { return seconds.empty() ? 1.0 : seconds[depths[block]]; }
};

/// What a policy knows of the request whose blocks it is told.
struct RequestView {
  std::uint64_t number = 0;  ///< counts up from 0
  double time_s = 0;         ///< when it arrived; never falls
  std::uint32_t category = kNever;
  std::int32_t priority = 0;
  /// Prompts that wait behind this one, the next first: as many as Replacement::lookahead asks for, or fewer.
  std::span<const std::span<const Block>> waiting{};
  /// Of every block of the path, the number of the next request whose prompt contains it, or kNever: for
  /// oracles alone.
  std::span<const std::uint32_t> next_use{};
  std::span<const Block> path{};  ///< what the request reads and leaves behind, from the first block on
};

/// The blocks that are in the cache, and those among them that may not be evicted now.
class BlockStore {
 public:
  BlockStore(std::size_t blocks, std::size_t capacity) : states_(blocks, 0), capacity_(capacity) {}

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool full() const { return size_ + taken_ >= capacity_; }
  bool resident(Block block) const { return (states_[block] & kResident) != 0; }
  /// Resident, and the policy knows it: it does not know what running requests alone have used yet.
  bool known(Block block) const { return (states_[block] & (kResident | kUntold)) == kResident; }
  /// A block of the present request, or one that a running request holds.
  bool pinned(Block block) const { return (states_[block] & ~kResident) != 0; }
  /// Held by a running request; the present one does not count. A block that the policy was not told of is
  /// held.
  bool held(Block block) const { return (states_[block] & kHolds) != 0; }

  /// The block is absent, and there is room.
  void store(Block block) {
    states_[block] |= kResident;
    ++size_;
    ++stored_;
  }
  /// The block is resident and not held.
  void evict(Block block) {
    states_[block] &= ~kResident;
    --size_;
    evicted_.push_back(block);
  }

  // For the cache, not for policies.
  void own(Block block) { states_[block] |= kOwn; }
  void disown(Block block) { states_[block] &= ~kOwn; }
  /// Returns whether it is the first hold.
  bool hold(Block block) { return (states_[block]++ & kHolds) == 0; }
  /// Returns whether it was the last one.
  bool release(Block block) { return (--states_[block] & kHolds) == 0; }
  /// Room for blocks that are none of a prompt's yet.
  std::size_t taken() const { return taken_; }
  void take(std::size_t blocks) { taken_ += blocks; }
  void give_back(std::size_t blocks) { taken_ -= blocks; }
  /// Stores a block that the policy is told of later, by then: forget() and Replacement::miss().
  void store_untold(Block block) {
    states_[block] |= kResident | kUntold;
    ++size_;
  }
  void forget(Block block) {
    states_[block] &= ~(kResident | kUntold);
    --size_;
  }
  std::uint64_t stored() const { return stored_; }    ///< since the beginning
  std::vector<Block>& evicted() { return evicted_; }  ///< in the present request, in order
  const std::vector<Block>& evicted() const { return evicted_; }

 private:
  static constexpr std::uint32_t kResident = 1u << 31, kOwn = 1u << 30, kUntold = 1u << 29,
                                 kHolds = kUntold - 1;
  std::vector<std::uint32_t> states_;
  std::vector<Block> evicted_{};
  std::size_t capacity_, size_ = 0, taken_ = 0;
  std::uint64_t stored_ = 0;
};

/// A policy with its state. Of every request it is told the start and then every block, the last first, so
/// that what leaves first under rules of recency is the end of a prompt and not its beginning.
class Replacement {
 public:
  virtual ~Replacement() = default;
  /// How many waiting requests it looks at.
  virtual std::size_t lookahead() const { return 0; }
  /// Reads RequestView::next_use.
  virtual bool knows_future() const { return false; }
  /// Never evicts some blocks, whoever needs room: for caches whose memory is theirs alone.
  virtual bool keeps_for_good() const { return false; }
  /// Pins have changed: blocks that were passed because they were pinned are looked at again. Called before
  /// start(), and before evict() where it is so.
  virtual void look_again() {}
  /// Time passes: blocks may leave without being displaced.
  virtual void advance(double time_s, BlockStore& store) {
    (void)time_s;
    (void)store;
  }
  virtual void start(const RequestView& request, BlockStore& store) {
    (void)request;
    (void)store;
  }
  /// The block is resident.
  virtual void hit(Block block, BlockStore& store) = 0;
  /// The block is absent. The policy stores it, evicting blocks that are not pinned where the cache is full
  /// (there is one), or leaves it out. To evict one of the request's own blocks is to have left it out.
  virtual void miss(Block block, BlockStore& store) = 0;
  /// One block that is not pinned leaves (there is one): running requests need its room.
  virtual void evict(BlockStore& store) = 0;
};

}  // namespace kvsim::policy
