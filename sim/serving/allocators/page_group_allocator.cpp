// vAttention (Prabhu et al. 2025): every slot has virtual memory for the longest sequence, and page groups
// (a page for keys and one for values in every layer) are mapped behind it as it fills. A slot whose sequence
// has left keeps its groups (deferred reclamation): a new sequence takes the free slot with the fewest groups
// that are enough, or else the one with the most. When no group is free, those of free slots are unmapped,
// the highest slot first.
#include <algorithm>

#include "sim/serving/allocators/allocator.hpp"

namespace kvsim::serving {
namespace {

class PageGroupAllocator final : public Allocator {
 public:
  explicit PageGroupAllocator(const AllocatorSettings& settings)
      : Allocator(settings.capacity, settings.places),
        group_(settings.page_group),
        groups_(settings.capacity / settings.page_group),
        slots_(settings.places),
        slot_of_(settings.places, 0) {}

  std::uint64_t longest() const override { return groups_ * group_; }
  MemoryUse use() const override {
    MemoryUse out = Allocator::use();
    out.kept = kept_ * group_;
    return out;
  }
  std::vector<Run> runs(Place place, std::uint64_t tokens) const override {
    std::vector<Run> out;  // of virtual memory
    append_run(out, slot_of_[place] * longest(), tokens);
    return out;
  }

 protected:
  bool reserve(Place place, std::uint64_t tokens) override {
    const std::uint64_t needed = groups_of(tokens);
    if (needed > groups_ - mapped_ + kept_) return false;
    const std::size_t slot = free_slot(needed);
    slots_[slot].taken = true;
    kept_ -= slots_[slot].groups;
    slot_of_[place] = slot;
    map(slot, needed);
    set_room(place, slots_[slot].groups * group_);
    return true;
  }
  bool extend(Place place, std::uint64_t tokens) override {
    const std::size_t slot = slot_of_[place];
    const std::uint64_t needed = groups_of(tokens);
    if (needed - slots_[slot].groups > groups_ - mapped_ + kept_) return false;
    map(slot, needed);
    set_room(place, needed * group_);
    return true;
  }
  void release(Place place) override {
    Slot& slot = slots_[slot_of_[place]];
    slot.taken = false;
    kept_ += slot.groups;
    set_room(place, 0);
  }

 private:
  struct Slot {
    std::uint64_t groups = 0;
    bool taken = false;
  };

  std::uint64_t groups_of(std::uint64_t tokens) const { return tokens / group_ + (tokens % group_ != 0); }

  /// There are as many slots as places, so one is free.
  std::size_t free_slot(std::uint64_t needed) const {
    std::size_t best = slots_.size();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].taken) continue;
      if (best == slots_.size()) {
        best = i;
        continue;
      }
      const std::uint64_t now = slots_[i].groups, before = slots_[best].groups;
      const bool enough = now >= needed, was_enough = before >= needed;
      if (enough != was_enough ? enough : enough ? now < before : now > before) best = i;
    }
    return best;
  }

  void map(std::size_t slot, std::uint64_t needed) {
    for (; slots_[slot].groups < needed; ++slots_[slot].groups) {
      if (mapped_ == groups_) unmap_one();
      ++mapped_;
      ++operations_.maps;
    }
  }
  void unmap_one() {
    for (std::size_t i = slots_.size(); i-- > 0;) {
      if (slots_[i].taken || slots_[i].groups == 0) continue;
      --slots_[i].groups;
      --mapped_;
      --kept_;
      ++operations_.unmaps;
      return;
    }
  }

  const std::uint64_t group_, groups_;
  std::uint64_t mapped_ = 0, kept_ = 0;  ///< groups: of all slots, and of free ones
  std::vector<Slot> slots_;
  std::vector<std::size_t> slot_of_;  ///< by place
};

}  // namespace

std::unique_ptr<Allocator> make_page_group_allocator(const AllocatorSettings& settings) {
  return std::make_unique<PageGroupAllocator>(settings);
}

}  // namespace kvsim::serving
