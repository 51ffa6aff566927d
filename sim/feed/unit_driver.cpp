#include "sim/feed/unit_driver.hpp"

#include "sim/base/error.hpp"

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

/// Adds a slot to the victims unless the decoder has named it. What the decoder keeps per slot has closed up
/// behind its own victims, so that the slot has another number there.
template <SlotStore Store>
void UnitDriver<Store>::add_leaving(Cache& cache, std::size_t slot) {
  ++cache.left_behind;
  if (std::find(victims_.begin(), victims_.end(), slot) != victims_.end()) return;
  if (cache.decoder && !victims_.empty()) {
    const auto closed_up = [&](std::size_t at) {
      return at - static_cast<std::size_t>(std::count_if(victims_.begin() + 1, victims_.end(),
                                                         [&](std::size_t victim) { return victim < at; }));
    };
    const std::size_t closing[] = {closed_up(victims_.front()), closed_up(slot)};
    cache.decoder->close_slots(closing);
  }
  victims_.push_back(slot);
}

template <SlotStore Store>
std::string UnitDriver<Store>::where() const {
  return "policy '" + part_->spec->name + "', layer " + std::to_string(layer_) + ", KV head " +
         std::to_string(first_kv_head_);
}

template class UnitDriver<IndexStore>;

}  // namespace kvsim::sim
