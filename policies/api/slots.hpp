#pragma once
/// Per-slot state of a decoder: how it begins with the prompt's, and closes up when several tokens are
/// evicted at once.
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// Returns the entries of tokens, of one entry per prompt position.
template <class T>
std::vector<T> at_positions(const std::vector<T>& per_position, std::span<const Position> positions) {
  std::vector<T> out;
  out.reserve(positions.size());
  for (const Position position : positions) out.push_back(per_position[static_cast<std::size_t>(position)]);
  return out;
}

/// Returns the slots that stay in order: all but those of the victims behind the first, whose slot the
/// arriving token takes.
inline std::vector<std::size_t> staying_slots(std::span<const std::size_t> victims, std::size_t slots) {
  std::vector<char> closed(slots);
  for (std::size_t i = 1; i < victims.size(); ++i) closed[victims[i]] = 1;
  std::vector<std::size_t> out;
  out.reserve(slots);
  for (std::size_t slot = 0; slot < slots; ++slot)
    if (!closed[slot]) out.push_back(slot);
  return out;
}

/// Removes the entries of all other slots. `per_slot` holds `width` values per slot.
template <class T>
void keep_slots(std::vector<T>& per_slot, std::span<const std::size_t> staying, std::size_t width = 1) {
  for (std::size_t to = 0; to < staying.size(); ++to)
    for (std::size_t i = 0; i < width; ++i) per_slot[to * width + i] = per_slot[staying[to] * width + i];
  per_slot.resize(staying.size() * width);
}

/// Removes the entries of every victim but the first, as the feeder does with the slots.
template <class T>
void close_up(std::vector<T>& per_slot, std::span<const std::size_t> victims, std::size_t width = 1) {
  if (victims.size() > 1) keep_slots(per_slot, staying_slots(victims, per_slot.size() / width), width);
}

// For decoders that keep something made of the keys or values of resident tokens.

/// A running model that is asked for the first token of an answer feeds the prompt's last token once more,
/// through the cut cache, and its new key and value take the place of those that the prompt left. A decoder
/// that derives this from Decoder too hears of it, where the token has a slot. What the token has received of
/// attention stays, and nothing leaves or joins.
class Renewing {
 public:
  virtual ~Renewing() = default;
  /// `step`: the slots, the token's slot with its new key and value, and its query; no attention.
  virtual void renew(const Step& step) = 0;
};

/// Passes it on to a decoder that another one asks for scores.
inline void renew(Decoder& decoder, const Step& step) {
  if (auto* const renewing = dynamic_cast<Renewing*>(&decoder)) renewing->renew(step);
}

}  // namespace kvsim::policy
