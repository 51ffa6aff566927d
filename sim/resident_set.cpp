#include "sim/resident_set.hpp"

#include <algorithm>
#include <tuple>

namespace kvsim::sim {

ResidentSet::ResidentSet(std::span<const policy::Position> kept, std::size_t most, bool log)
    : slots_(kept.begin(), kept.end()), log_(log) {
  slots_.reserve(most);
  stay_of_slot_.reserve(most);
  stays_.reserve(most);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    stay_of_slot_.push_back(slot);
    stays_.push_back({slots_[slot], 0, kForever});
  }
}

std::size_t ResidentSet::join(policy::Position position, std::uint32_t step) {
  stay_of_slot_.push_back(stays_.size());
  stays_.push_back({position, step, kForever});
  slots_.push_back(position);
  return slots_.size() - 1;
}

void ResidentSet::replace(std::size_t slot, policy::Position position, std::uint32_t step) {
  stays_[stay_of_slot_[slot]].last = step;
  stay_of_slot_[slot] = stays_.size();
  stays_.push_back({position, step, kForever});
  slots_[slot] = position;
}

void ResidentSet::begin_block() {
  if (log_)
    std::copy_if(stays_.begin(), stays_.end(), std::back_inserter(ended_),
                 [](const Residency& stay) { return stay.last != kForever; });
  // Open stays move to the front in slot order, so a slot's stay is found by its number again.
  std::vector<Residency> open;
  open.reserve(stays_.capacity());
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    open.push_back(stays_[stay_of_slot_[slot]]);
    stay_of_slot_[slot] = slot;
  }
  stays_.swap(open);
}

std::vector<Residency> ResidentSet::history(std::uint32_t end) const {
  std::vector<Residency> all = ended_;
  for (Residency stay : stays_) {
    stay.last = std::min(stay.last, end);
    all.push_back(stay);
  }
  std::sort(all.begin(), all.end(), [](const Residency& a, const Residency& b) {
    return std::tie(a.position, a.first) < std::tie(b.position, b.first);
  });
  return all;
}

}  // namespace kvsim::sim
