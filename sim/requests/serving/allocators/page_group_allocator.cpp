// vAttention (Prabhu et al. 2025): every slot has virtual memory for the longest sequence, and page groups
// (a page for keys and one for values in every layer) are mapped behind it as it fills. A slot keeps its
// groups when its sequence leaves, until another needs them: then what slots have beyond their sequences is
// unmapped, the highest slot first and each as a whole. A new sequence takes the first free slot, or a later
// one that has groups enough and fewer, as in the released code.

#include "sim/requests/serving/allocators/allocator.hpp"

namespace kvsim::serving {
namespace {

constexpr Place kNobody = ~Place{0};

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
    out.kept = mapped_ * group_ - out.reserved;
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
    const std::size_t slot = free_slot(needed);
    if (!map(slot, needed)) return false;
    slots_[slot].place = place;
    slot_of_[place] = slot;
    set_room(place, slots_[slot].groups * group_);
    return true;
  }
  bool extend(Place place, std::uint64_t tokens) override {
    const std::uint64_t needed = groups_of(tokens);
    if (!map(slot_of_[place], needed)) return false;
    set_room(place, needed * group_);
    return true;
  }
  void release(Place place) override {
    slots_[slot_of_[place]].place = kNobody;
    set_room(place, 0);
  }

 private:
  struct Slot {
    std::uint64_t groups = 0;
    Place place = kNobody;
  };

  std::uint64_t groups_of(std::uint64_t tokens) const { return cost::ceil_divided(tokens, group_); }

  /// There are as many slots as places, so one is free.
  std::size_t free_slot(std::uint64_t needed) const {
    std::size_t chosen = slots_.size();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].place != kNobody) continue;
      if (chosen == slots_.size() || (slots_[i].groups >= needed && slots_[i].groups < slots_[chosen].groups))
        chosen = i;
    }
    return chosen;
  }

  /// Groups that a slot has and its sequence does not need.
  std::uint64_t spare(const Slot& slot) const {
    return slot.groups - (slot.place == kNobody ? 0 : groups_of(used(slot.place)));
  }

  /// Maps groups behind a slot until it has `needed`; false, and nothing is changed, where there are not as
  /// many.
  bool map(std::size_t asking, std::uint64_t needed) {
    Slot& slot = slots_[asking];
    if (needed <= slot.groups) return true;
    const std::uint64_t more = needed - slot.groups;
    if (!make_free(asking, more)) return false;
    slot.groups = needed;
    mapped_ += more;
    operations_.maps += more;
    return true;
  }

  bool make_free(std::size_t asking, std::uint64_t more) {
    if (more <= groups_ - mapped_) return true;
    std::uint64_t all = groups_ - mapped_;
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (i != asking) all += spare(slots_[i]);
    if (more > all) return false;
    for (std::size_t i = slots_.size(); i-- > 0 && more > groups_ - mapped_;) {
      if (i == asking) continue;
      const std::uint64_t unmapped = spare(slots_[i]);
      slots_[i].groups -= unmapped;
      mapped_ -= unmapped;
      operations_.unmaps += unmapped;
      if (slots_[i].place != kNobody) set_room(slots_[i].place, slots_[i].groups * group_);
    }
    return true;
  }

  const std::uint64_t group_, groups_;
  std::uint64_t mapped_ = 0;  ///< groups of all slots
  std::vector<Slot> slots_;
  std::vector<std::size_t> slot_of_;  ///< by place
};

}  // namespace

std::unique_ptr<Allocator> make_page_group_allocator(const AllocatorSettings& settings) {
  return std::make_unique<PageGroupAllocator>(settings);
}

}  // namespace kvsim::serving
