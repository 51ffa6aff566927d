#include "policies/api/cache_rows.hpp"

#include <algorithm>

#include "policies/api/slots.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {

CacheRows::CacheRows(const StorageShape& shape, std::size_t most, std::size_t length)
    : shape_(shape),
      most_(most),
      slot_of_(length, -1),
      keys_(shape.n_lanes * most * shape.key_dim),
      values_(shape.n_lanes * most * shape.value_dim),
      biases_(shape.n_lanes * most),
      rest_keys_(shape.n_lanes * shape.key_dim),
      rest_values_(shape.n_lanes * shape.value_dim),
      rest_biases_(shape.n_lanes, -std::numeric_limits<float>::infinity()) {
  positions_.reserve(most);
}

std::size_t CacheRows::join(std::span<const std::size_t> victims, Position position, MatrixView keys,
                            MatrixView values) {
  std::size_t slot = slots();
  if (victims.empty()) {
    if (slot == most_) bug("stored rows hold " + std::to_string(most_) + " slots and are full");
    positions_.push_back(position);
  } else {
    slot = victims[0];
    for (const std::size_t victim : victims) slot_of_[static_cast<std::size_t>(positions_[victim])] = -1;
    if (victims.size() > 1) {
      // The slot of the first victim stays; those of the others close up.
      std::vector<std::size_t> leaving(victims.begin() + 1, victims.end());
      std::sort(leaving.begin(), leaving.end());
      std::size_t to = leaving.front(), next = 0;
      for (std::size_t from = to; from < positions_.size(); ++from) {
        if (next < leaving.size() && leaving[next] == from) {
          ++next;
          continue;
        }
        if (from == victims[0]) slot = to;
        positions_[to] = positions_[from];
        if (from != victims[0])
          slot_of_[static_cast<std::size_t>(positions_[to])] = static_cast<std::int32_t>(to);
        for (std::size_t lane = 0; lane < shape_.n_lanes; ++lane) {
          std::ranges::copy(key(lane, from), key(lane, to).begin());
          std::ranges::copy(value(lane, from), value(lane, to).begin());
          bias(lane, to) = bias(lane, from);
        }
        ++to;
      }
      positions_.resize(to);
    }
    positions_[slot] = position;
  }
  slot_of_[static_cast<std::size_t>(position)] = static_cast<std::int32_t>(slot);
  for (std::size_t lane = 0; lane < shape_.n_lanes; ++lane) {
    std::ranges::copy(keys.row(lane), key(lane, slot).begin());
    std::ranges::copy(values.row(lane), value(lane, slot).begin());
    bias(lane, slot) = 0;
  }
  return slot;
}

}  // namespace kvsim::policy
