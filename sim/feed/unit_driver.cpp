#include "sim/feed/unit_driver.hpp"

#include <numeric>

namespace kvsim::sim {

using policy::Position;

template <SlotStore Store>
void UnitDriver<Store>::check_kept(const std::vector<Position>& keep, std::size_t most) const {
  if (keep.size() > most)
    bug("keeps " + std::to_string(keep.size()) + " prompt positions of at most " + std::to_string(most),
        where());
  for (std::size_t i = 0; i < keep.size(); ++i)
    if (keep[i] < 0 || keep[i] >= static_cast<Position>(prompt_) || (i > 0 && keep[i] <= keep[i - 1]))
      bug("kept positions must be distinct, ascending and in the prompt; entry " + std::to_string(i) +
              " is " + std::to_string(keep[i]),
          where());
}

template <SlotStore Store>
void UnitDriver<Store>::check_victims(Position position, std::size_t n_slots, bool full) {
  const auto wrong = [&](const std::string& what) {
    bug(what + " at position " + std::to_string(position), where());
  };
  if (full && victims_.empty()) wrong("evicts nothing from a full cache");
  for (const std::size_t slot : victims_)
    if (slot >= n_slots) wrong("evicts slot " + std::to_string(slot) + " of " + std::to_string(n_slots));
  if (victims_.size() < 2) return;
  distinct_ = victims_;
  std::sort(distinct_.begin(), distinct_.end());
  if (std::adjacent_find(distinct_.begin(), distinct_.end()) != distinct_.end()) wrong("evicts a slot twice");
}

template <SlotStore Store>
void UnitDriver<Store>::find_leaving(const Cache& cache, Position position) {
  const std::span<const Position> slots = cache.residents.slots();
  const auto at = static_cast<std::size_t>(position);
  leaving_.clear();
  if (chunk_ > 0 && at % chunk_ == 0) {
    leaving_.resize(slots.size());
    std::iota(leaving_.begin(), leaving_.end(), std::size_t{0});
  }
  if (span_ == 0 || at < span_) return;
  const auto behind = static_cast<Position>(at - span_);
  if (!cache.residents.contains(behind)) return;
  leaving_.push_back(static_cast<std::size_t>(std::find(slots.begin(), slots.end(), behind) - slots.begin()));
}

/// Adds the leaving slots to the victims, but for those that the decoder has named. What the decoder keeps
/// per slot has closed up behind its own victims, so that slots have other numbers there.
template <SlotStore Store>
void UnitDriver<Store>::add_leaving(Cache& cache) {
  cache.left_behind += leaving_.size();
  const auto named = [&](std::size_t slot) {
    return std::find(victims_.begin(), victims_.end(), slot) != victims_.end();
  };
  const auto closed_up = [&](std::size_t at) {
    const auto behind = [&](std::size_t victim) { return victim < at; };
    return at - static_cast<std::size_t>(
                    victims_.empty() ? 0 : std::count_if(victims_.begin() + 1, victims_.end(), behind));
  };
  std::erase_if(leaving_, named);
  if (leaving_.empty()) return;
  if (cache.decoder) {
    closing_.clear();
    if (!victims_.empty()) closing_.push_back(closed_up(victims_.front()));
    for (const std::size_t slot : leaving_) closing_.push_back(closed_up(slot));
    if (closing_.size() > 1) cache.decoder->close_slots(closing_);
  }
  victims_.insert(victims_.end(), leaving_.begin(), leaving_.end());
}

template <SlotStore Store>
std::string UnitDriver<Store>::where() const {
  return "policy '" + part_->spec->name + "', layer " + std::to_string(layer_) + ", KV head " +
         std::to_string(first_kv_head_);
}

template class UnitDriver<IndexStore>;

}  // namespace kvsim::sim
