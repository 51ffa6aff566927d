#include "sim/replay/resident_set.hpp"

#include <algorithm>
#include <tuple>

#include "policies/api/slots.hpp"

namespace kvsim::sim {

ResidentSet::ResidentSet(std::span<const policy::Position> kept, std::size_t most, std::size_t length,
                         bool log)
    : slots_(kept.begin(), kept.end()), held_(length), log_(log) {
  slots_.reserve(most);
  stay_of_slot_.reserve(most);
  stays_.reserve(most);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    stay_of_slot_.push_back(slot);
    held_[static_cast<std::size_t>(slots_[slot])] = 1;
    stays_.push_back({slots_[slot], 0, kForever});
  }
}

std::size_t ResidentSet::join(std::span<const std::size_t> victims, policy::Position position,
                              std::uint32_t step) {
  std::size_t slot = slots_.size();
  if (!victims.empty()) {
    slot = victims[0];
    for (const std::size_t victim : victims) {
      stays_[stay_of_slot_[victim]].last = step;
      held_[static_cast<std::size_t>(slots_[victim])] = 0;
      if (victim < victims[0]) --slot;
    }
    policy::close_up(slots_, victims);
    policy::close_up(stay_of_slot_, victims);
  } else {
    slots_.push_back(position);
    stay_of_slot_.push_back(0);
  }
  slots_[slot] = position;
  held_[static_cast<std::size_t>(position)] = 1;
  stay_of_slot_[slot] = stays_.size();
  stays_.push_back({position, step, kForever});
  return slot;
}

void ResidentSet::begin_block() {
  if (log_)
    std::copy_if(stays_.begin(), stays_.end(), std::back_inserter(ended_),
                 [](const ResidentInterval& stay) { return stay.last != kForever; });
  drop_ended();
}

void ResidentSet::begin_history() {
  drop_ended();
}

void ResidentSet::drop_ended() {
  // Open stays move to the front in slot order, so a slot's stay is found by its number again.
  std::vector<ResidentInterval> open;
  open.reserve(stays_.capacity());
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    open.push_back(stays_[stay_of_slot_[slot]]);
    stay_of_slot_[slot] = slot;
  }
  stays_.swap(open);
}

std::vector<ResidentInterval> ResidentSet::history(std::uint32_t end) const {
  std::vector<ResidentInterval> all = ended_;
  for (ResidentInterval stay : stays_) {
    stay.last = std::min(stay.last, end);
    all.push_back(stay);
  }
  std::sort(all.begin(), all.end(), [](const ResidentInterval& a, const ResidentInterval& b) {
    return std::tie(a.position, a.first) < std::tie(b.position, b.first);
  });
  return all;
}

}  // namespace kvsim::sim
