#pragma once
/// One cache whose numbers are not the recorded ones: what a codec has made of them.
#include <memory>
#include <optional>
#include <vector>

#include "policies/api/representation.hpp"
#include "sim/feed/slot_attention.hpp"
#include "sim/feed/slot_store.hpp"

namespace kvsim::sim {

class StoredCache {
 public:
  /// `observes`: whether the codec is shown the weights of each step. `rows`: what is kept of the prompt,
  /// exact.
  StoredCache(std::unique_ptr<policy::Codec> codec, bool observes, policy::CacheRows rows,
              const policy::Prompt& prompt)
      : codec_(std::move(codec)), observes_(observes), rows_(std::move(rows)) {
    codec_->begin(prompt, rows_);
  }

  const policy::CacheRows& rows() const { return rows_; }
  bool observes() const { return observes_; }
  policy::Ledger ledger() const { return codec_->ledger(rows_); }
  std::optional<std::uint64_t> sent_bits() const { return codec_->sent_bits(); }

  /// A token joins with exact numbers, as SlotStore::join() says. `leaving`: the one of the victims that the
  /// layer's window leaves behind.
  std::size_t join(std::span<const std::size_t> victims, const Token& token,
                   std::optional<std::size_t> leaving = {}) {
    if (!victims.empty()) codec_->leave(victims, rows_, leaving);
    const std::size_t slot = rows_.join(victims, token.position, token.keys, token.values);
    codec_->join(slot, rows_);
    return slot;
  }
  /// The queries of the token in this slot have attended the slots by these weights, [queries, slots].
  void settle(std::size_t own_slot, MatrixView weights) {
    if (observes_) codec_->observe(weights, rows_);
    codec_->settle(own_slot, rows_);
  }

  /// The other layer of a pair has processed the token in this slot, too.
  void pair(std::size_t own_slot, MatrixView keys, MatrixView values) {
    codec_->pair(own_slot, keys, values, rows_);
  }

  /// Room for the weights of a step: [n_heads, columns], a row per query of the unit. A column per slot and,
  /// where a query attends a token that has no slot, one more.
  void begin_step(std::size_t n_heads, std::size_t columns) {
    n_heads_ = n_heads;
    columns_ = columns;
    weights_.resize(n_heads * columns);
  }
  std::span<float> weights(std::size_t head) { return {weights_.data() + head * columns_, columns_}; }
  /// What a decoder observes: the weights, which add up to 1.
  SlotAttention slot_attention() {
    mass_.assign(n_heads_, 1.0);
    return {{weights_.data(), n_heads_, columns_, columns_}, mass_};
  }

 private:
  std::unique_ptr<policy::Codec> codec_;
  bool observes_;
  policy::CacheRows rows_;
  std::size_t n_heads_ = 0, columns_ = 0;
  std::vector<float> weights_;
  std::vector<double> mass_;
};

}  // namespace kvsim::sim
