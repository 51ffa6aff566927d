#pragma once
/// The keys and values of one cache of a unit as attention reads them, where they are not the recorded ones.
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// The shape of a unit's cache: lanes with the same number of tokens.
struct StorageShape {
  std::size_t n_lanes = 1;
  std::size_t key_dim = 0, value_dim = 0;
  std::uint64_t element_bits = 16;        ///< of a number that is stored as it comes
  std::uint32_t layer = 0, n_layers = 1;  ///< of the model, for codes that differ by depth
};

/// Slots are numbered as those of the cache (Decoder::evict): the token that joins takes the slot of the
/// first victim, those of the others close up, and without victims it takes a new slot behind the last.
class CacheRows {
 public:
  /// Without a slot. Positions are below `length`; at most `most` slots are ever used at once.
  CacheRows(const StorageShape& shape, std::size_t most, std::size_t length);

  const StorageShape& shape() const { return shape_; }
  std::size_t slots() const { return positions_.size(); }
  /// The position in each slot.
  std::span<const Position> positions() const { return positions_; }
  bool holds(Position position) const { return slot_of_[static_cast<std::size_t>(position)] >= 0; }
  /// Of a position that is held.
  std::size_t slot_of(Position position) const {
    return static_cast<std::size_t>(slot_of_[static_cast<std::size_t>(position)]);
  }

  std::span<float> key(std::size_t lane, std::size_t slot) {
    return {keys_.data() + (lane * most_ + slot) * shape_.key_dim, shape_.key_dim};
  }
  std::span<float> value(std::size_t lane, std::size_t slot) {
    return {values_.data() + (lane * most_ + slot) * shape_.value_dim, shape_.value_dim};
  }
  /// Added to the logit of the slot; 0 unless a representation sets it.
  float& bias(std::size_t lane, std::size_t slot) { return biases_[lane * most_ + slot]; }
  /// A row that every query attends beside the slots: it stands for tokens that have none. There is none
  /// while its bias is minus infinity, as it is unless a representation sets it.
  std::span<float> rest_key(std::size_t lane) {
    return {rest_keys_.data() + lane * shape_.key_dim, shape_.key_dim};
  }
  std::span<float> rest_value(std::size_t lane) {
    return {rest_values_.data() + lane * shape_.value_dim, shape_.value_dim};
  }
  float& rest_bias(std::size_t lane) { return rest_biases_[lane]; }
  std::span<const float> rest_key(std::size_t lane) const {
    return {rest_keys_.data() + lane * shape_.key_dim, shape_.key_dim};
  }
  std::span<const float> rest_value(std::size_t lane) const {
    return {rest_values_.data() + lane * shape_.value_dim, shape_.value_dim};
  }
  float rest_bias(std::size_t lane) const { return rest_biases_[lane]; }
  bool has_rest(std::size_t lane) const {
    return rest_biases_[lane] > -std::numeric_limits<float>::infinity();
  }
  /// [slots, dim] of one lane.
  MatrixView keys(std::size_t lane) const {
    return {keys_.data() + lane * most_ * shape_.key_dim, slots(), shape_.key_dim, shape_.key_dim};
  }
  MatrixView values(std::size_t lane) const {
    return {values_.data() + lane * most_ * shape_.value_dim, slots(), shape_.value_dim, shape_.value_dim};
  }
  std::span<const float> biases(std::size_t lane) const { return {biases_.data() + lane * most_, slots()}; }

  /// A token joins with exact numbers. `keys`: [n_lanes, key_dim], `values`: [n_lanes, value_dim]. Returns
  /// its slot.
  std::size_t join(std::span<const std::size_t> victims, Position position, MatrixView keys,
                   MatrixView values);

 private:
  StorageShape shape_;
  std::size_t most_;
  std::vector<Position> positions_;
  std::vector<std::int32_t> slot_of_;  ///< per position; -1: not held
  std::vector<float> keys_, values_, biases_;
  std::vector<float> rest_keys_, rest_values_, rest_biases_;  ///< per lane
};

}  // namespace kvsim::policy
