#include "sim/feed/index_store.hpp"

#include <algorithm>
#include <tuple>

#include "policies/api/slots.hpp"

namespace kvsim::sim {

IndexStore::IndexStore(std::span<const policy::Position> kept, std::size_t most, std::size_t length, bool log)
    : slots_(kept.begin(), kept.end()), resident_(length), log_(log) {
  slots_.reserve(most);
  interval_of_slot_.reserve(most);
  intervals_.reserve(most);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    interval_of_slot_.push_back(slot);
    resident_[static_cast<std::size_t>(slots_[slot])] = 1;
    intervals_.push_back({slots_[slot], 0, kOpen});
  }
}

std::size_t IndexStore::join(std::span<const std::size_t> victims, const Token& token, std::uint32_t step) {
  std::size_t slot = slots_.size();
  if (!victims.empty()) {
    slot = victims[0];
    for (const std::size_t victim : victims) {
      intervals_[interval_of_slot_[victim]].last = step;
      resident_[static_cast<std::size_t>(slots_[victim])] = 0;
      if (victim < victims[0]) --slot;
    }
    policy::close_up(slots_, victims);
    policy::close_up(interval_of_slot_, victims);
  } else {
    slots_.push_back(token.position);
    interval_of_slot_.push_back(0);
  }
  slots_[slot] = token.position;
  resident_[static_cast<std::size_t>(token.position)] = 1;
  interval_of_slot_[slot] = intervals_.size();
  intervals_.push_back({token.position, step, kOpen});
  return slot;
}

void IndexStore::begin_block() {
  if (log_)
    std::copy_if(intervals_.begin(), intervals_.end(), std::back_inserter(ended_),
                 [](const ResidentInterval& interval) { return interval.last != kOpen; });
  forget_ended();
}

void IndexStore::forget_ended() {
  // Open intervals move to the front in slot order, so that interval i is the one of slot i.
  std::vector<ResidentInterval> open;
  open.reserve(intervals_.capacity());
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    open.push_back(intervals_[interval_of_slot_[slot]]);
    interval_of_slot_[slot] = slot;
  }
  intervals_.swap(open);
}

std::vector<ResidentInterval> IndexStore::history(std::uint32_t end) const {
  std::vector<ResidentInterval> all = ended_;
  for (ResidentInterval interval : intervals_) {
    interval.last = std::min(interval.last, end);
    all.push_back(interval);
  }
  std::sort(all.begin(), all.end(), [](const ResidentInterval& a, const ResidentInterval& b) {
    return std::tie(a.position, a.first) < std::tie(b.position, b.first);
  });
  return all;
}

}  // namespace kvsim::sim
