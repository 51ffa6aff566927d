#pragma once
/// Defines a representation: how the keys and values of the tokens that an eviction keeps are stored.
///
/// A Representation serves one unit (policies/api/eviction.hpp): it observes the prompt once, for every cache
/// of the unit. Each cache gets its own Codec, which rewrites the numbers that attention reads. The prompt
/// itself is processed with exact numbers; every later token reads what is stored. The feeder calls:
/// - Representation::observe(), finish_prompt(): as an eviction's
/// - Codec::begin(): the prompt has been cut, and the rows hold exactly what is kept of it
/// then for each generated token:
/// - Codec::leave(), before the victims of the eviction lose their slots
/// - Codec::join(): the token has joined with exact numbers, and its query is about to attend
/// - Codec::observe(), with Needs::decode_rows: the weights by which its queries have attended
/// - Codec::settle(): its query has attended
/// - Codec::pair(), where Representation::partner() names another layer: that has processed the token, too
///
/// What a codec has rewritten stays: the rows are the only memory of a token, and a codec that stores a token
/// in fewer bits later on codes what it has, not the original.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "policies/api/cache_rows.hpp"

namespace kvsim::policy {

/// What a lane holds: of the prompt, and generated tokens after it.
struct LaneTokens {
  std::uint64_t kept = 0, appended = 0;

  std::uint64_t all() const { return kept + appended; }
};

/// What a cache takes by class, in bits.
struct Ledger {
  std::uint64_t exact = 0;       ///< tokens that are stored as they come: windows, sinks
  std::uint64_t codes = 0;       ///< numbers in fewer bits, or fewer numbers
  std::uint64_t parameters = 0;  ///< scales, zero points, norms
  std::uint64_t outliers = 0;    ///< numbers that are stored beside their code, and where they belong
  std::uint64_t indices = 0;     ///< masks, classes of tokens, permutations
  std::uint64_t tables = 0;      ///< factors and scales of this sequence
  std::uint64_t shared = 0;      ///< tables that all sequences share; not part of the sum
  std::uint64_t host = 0;        ///< what lies in host memory; not part of the sum

  /// Of one sequence, on the device.
  std::uint64_t bits() const { return exact + codes + parameters + outliers + indices + tables; }
  Ledger& operator+=(const Ledger& other) {
    exact += other.exact;
    codes += other.codes;
    parameters += other.parameters;
    outliers += other.outliers;
    indices += other.indices;
    tables += other.tables;
    shared += other.shared;
    host += other.host;
    return *this;
  }
  bool operator==(const Ledger&) const = default;
};

/// Of `tokens` tokens in every lane that are stored as they come.
inline Ledger exact_ledger(const StorageShape& shape, std::uint64_t tokens) {
  return {.exact = tokens * shape.n_lanes * (shape.key_dim + shape.value_dim) * shape.element_bits};
}

class Codec {
 public:
  virtual ~Codec() = default;
  virtual void begin(const Prompt& prompt, CacheRows& rows) = 0;
  /// `behind`: the one of the victims that no later query sees, because the layer's window leaves it behind:
  /// nothing may stand for it.
  virtual void leave(std::span<const std::size_t> /*victims*/, CacheRows& /*rows*/,
                     std::optional<std::size_t> /*behind*/) {}
  virtual void join(std::size_t /*own_slot*/, CacheRows& /*rows*/) {}
  /// `weights`: [query heads of the unit, slots], attention over the rows as they are stored; each query's
  /// add up to 1.
  virtual void observe(MatrixView /*weights*/, const CacheRows& /*rows*/) {}
  virtual void settle(std::size_t /*own_slot*/, CacheRows& /*rows*/) {}
  /// `keys`, `values`: [n_lanes, dim], the token's own in the other layer, as they came.
  virtual void pair(std::size_t /*own_slot*/, MatrixView /*keys*/, MatrixView /*values*/,
                    CacheRows& /*rows*/) {}
  /// What the rows take now.
  virtual Ledger ledger(const CacheRows& rows) const = 0;
  /// What sending the rows takes as begin() has left them, where the codec has a form that is smaller than
  /// the one it holds.
  virtual std::optional<std::uint64_t> sent_bits() const { return {}; }
};

class Representation : public PromptObserver {
 public:
  void finish_prompt(const Prompt& /*prompt*/) override {}
  /// The layer that the unit's is stored together with, which is that layer's partner in turn; none: it is
  /// stored alone. Where any layer has one, the eviction must be `full`, so that both hold the same tokens.
  virtual std::optional<int> partner() const { return {}; }
  /// Comes after finish_prompt() where there is a partner: the same lanes here and there.
  virtual void finish_pair(const Prompt& /*own*/, const Prompt& /*other*/) {}
  virtual std::unique_ptr<Codec> codec() const = 0;
};

// A view of what a cache of one unit holds, as attention reads it.

/// Where the keys and values of one lane lie: of positions before a split, and of those from it on.
struct LaneRows {
  MatrixView keys{}, values{};            ///< row r is position r
  MatrixView late_keys{}, late_values{};  ///< row r is position split + r
};

class StoredTokens {
 public:
  /// Tokens that are stored as they come. `positions`: in each slot. `lanes`: of the unit.
  StoredTokens(std::span<const Position> positions, std::span<const LaneRows> lanes,
               Position split = std::numeric_limits<Position>::max())
      : positions_(positions), lanes_(lanes), split_(split) {}
  /// What a codec has made of them. `rows` outlives the view.
  explicit StoredTokens(const CacheRows& rows) : positions_(rows.positions()), rows_(&rows) {}

  std::size_t slots() const { return positions_.size(); }
  /// The position in each slot.
  std::span<const Position> positions() const { return positions_; }
  std::span<const float> key(std::size_t lane, std::size_t slot) const {
    if (rows_) return rows_->keys(lane).row(slot);
    const Position at = positions_[slot];
    return at < split_ ? lanes_[lane].keys.row(static_cast<std::size_t>(at))
                       : lanes_[lane].late_keys.row(static_cast<std::size_t>(at - split_));
  }
  std::span<const float> value(std::size_t lane, std::size_t slot) const {
    if (rows_) return rows_->values(lane).row(slot);
    const Position at = positions_[slot];
    return at < split_ ? lanes_[lane].values.row(static_cast<std::size_t>(at))
                       : lanes_[lane].late_values.row(static_cast<std::size_t>(at - split_));
  }
  /// Added to the logit of the slot.
  float bias(std::size_t lane, std::size_t slot) const { return rows_ ? rows_->biases(lane)[slot] : 0; }

 private:
  std::span<const Position> positions_;
  std::span<const LaneRows> lanes_{};
  Position split_ = std::numeric_limits<Position>::max();
  const CacheRows* rows_ = nullptr;
};

}  // namespace kvsim::policy
