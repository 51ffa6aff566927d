// Groups of neighbouring blocks, as FastSwitch has them (Shen et al. 2024): a sequence gets a group that is
// larger than it needs, so that it lies in few runs; when memory is short, what others hold and do not use is
// split off their last groups. Groups are powers of two of blocks, aligned to their size, and free buddies
// merge. The paper does not say how large groups are; here the first is the next power of two of what is
// needed, and each further one as large as all before it, rounded down.
#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "sim/requests/serving/allocators/allocator.hpp"

namespace kvsim::serving {
namespace {

struct Group {
  std::uint64_t begin = 0;  ///< its first block
  unsigned order = 0;       ///< it has 2^order blocks

  std::uint64_t blocks() const { return std::uint64_t{1} << order; }
};

/// Free blocks as aligned groups, of every two buddies at most one.
class FreeGroups {
 public:
  explicit FreeGroups(std::uint64_t blocks) {
    for (std::uint64_t begin = 0; begin < blocks;) {
      const unsigned aligned = begin == 0 ? 63u : static_cast<unsigned>(std::countr_zero(begin));
      const unsigned fitting = static_cast<unsigned>(std::bit_width(blocks - begin)) - 1;
      const Group group{begin, std::min(aligned, fitting)};
      give(group);
      begin += group.blocks();
    }
  }

  std::uint64_t blocks() const { return blocks_; }

  /// Takes a group of `order`, split off the smallest that is large enough; of a lower order where there is
  /// none. Some block must be free.
  Group take(unsigned order) {
    unsigned at = order;
    while (at < kOrders && by_order_[at].empty()) ++at;
    if (at == kOrders) {
      at = order;
      while (by_order_[at].empty()) --at;
      order = at;
    }
    Group group{*by_order_[at].begin(), at};
    by_order_[at].erase(by_order_[at].begin());
    while (group.order > order) {
      --group.order;
      by_order_[group.order].insert(group.begin + group.blocks());
    }
    blocks_ -= group.blocks();
    return group;
  }

  void give(Group group) {
    blocks_ += group.blocks();
    for (;; ++group.order) {
      const auto buddy = by_order_[group.order].find(group.begin ^ group.blocks());
      if (buddy == by_order_[group.order].end()) break;
      group.begin = std::min(group.begin, *buddy);
      by_order_[group.order].erase(buddy);
    }
    by_order_[group.order].insert(group.begin);
  }

 private:
  static constexpr unsigned kOrders = 64;
  std::array<std::set<std::uint64_t>, kOrders> by_order_{};  ///< first blocks
  std::uint64_t blocks_ = 0;
};

class BuddyAllocator final : public Allocator {
 public:
  explicit BuddyAllocator(const AllocatorSettings& settings)
      : Allocator(settings.capacity, settings.places),
        block_(settings.block),
        blocks_(settings.capacity / settings.block),
        free_(blocks_),
        tables_(settings.places) {}

  std::uint64_t longest() const override { return blocks_ * block_; }
  std::vector<Run> runs(Place place, std::uint64_t tokens) const override {
    std::vector<Run> out;
    for (const Group& group : tables_[place]) {
      const std::uint64_t here = std::min(tokens, group.blocks() * block_);
      append_run(out, group.begin * block_, here);
      tokens -= here;
    }
    return out;
  }

 protected:
  bool reserve(Place place, std::uint64_t tokens) override { return extend(place, tokens); }
  bool extend(Place place, std::uint64_t tokens) override {
    const std::uint64_t needed = blocks_of(tokens), held = room(place) / block_, more = needed - held;
    if (!make_free(place, more)) return false;
    // The first group covers what is needed; a further one doubles what is there.
    const std::uint64_t wanted = held == 0 ? std::bit_ceil(more) : std::bit_floor(held);
    std::uint64_t taken = 0;
    while (taken < more) {
      const std::uint64_t want = std::max(wanted > taken ? wanted - taken : 1, more - taken);
      const Group group = free_.take(static_cast<unsigned>(std::bit_width(std::bit_ceil(want))) - 1);
      tables_[place].push_back(group);
      taken += group.blocks();
      ++operations_.maps;
    }
    set_room(place, (held + taken) * block_);
    return true;
  }
  void release(Place place) override {
    for (const Group& group : tables_[place]) free_.give(group);
    operations_.unmaps += tables_[place].size();
    tables_[place].clear();
    set_room(place, 0);
  }

 private:
  std::uint64_t blocks_of(std::uint64_t tokens) const { return cost::ceil_divided(tokens, block_); }
  std::uint64_t unused(Place place) const { return room(place) / block_ - blocks_of(used(place)); }

  /// Takes unused blocks of other sequences until `blocks` are free, first of those that have most.
  bool make_free(Place asking, std::uint64_t blocks) {
    if (free_.blocks() >= blocks) return true;
    std::uint64_t all = free_.blocks();
    for (Place place = 0; place < places(); ++place)
      if (place != asking) all += unused(place);
    if (all < blocks) return false;
    while (free_.blocks() < blocks) {
      Place most = asking == 0 ? 1 : 0;
      for (Place place = 0; place < places(); ++place)
        if (place != asking && unused(place) > unused(most)) most = place;
      split_off(most, blocks - free_.blocks());
    }
    return true;
  }

  /// Frees at least min(blocks, unused) blocks behind what a sequence uses.
  void split_off(Place place, std::uint64_t blocks) {
    std::vector<Group>& table = tables_[place];
    std::uint64_t left = std::min(blocks, unused(place));
    while (left > 0) {
      Group& last = table.back();
      if (last.blocks() <= unused(place)) {
        left -= std::min(left, last.blocks());
        give_back(place, last);
        table.pop_back();
        continue;
      }
      --last.order;  // its first half stays, and is looked at again
      const Group half{last.begin + last.blocks(), last.order};
      if (half.blocks() <= unused(place)) {
        left -= std::min(left, half.blocks());
        give_back(place, half);
      } else {
        table.push_back(half);
      }
    }
  }
  void give_back(Place place, const Group& group) {
    set_room(place, room(place) - group.blocks() * block_);
    free_.give(group);
    ++operations_.unmaps;
  }

  const std::uint64_t block_, blocks_;
  FreeGroups free_;
  std::vector<std::vector<Group>> tables_;
};

}  // namespace

std::unique_ptr<Allocator> make_buddy_allocator(const AllocatorSettings& settings) {
  return std::make_unique<BuddyAllocator>(settings);
}

}  // namespace kvsim::serving
