#pragma once
/// Feeds a representation one cache of a unit by hand: what is kept of a prompt, then tokens one by one.
#include <memory>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"

namespace kvsim::policy::test {

struct CacheShape {
  std::string representation{};  ///< as after '+'
  std::size_t prompt = 0;        ///< tokens that begin() finds, at positions 0 .. prompt - 1
  std::size_t n_lanes = 1, dim = 4;
  std::size_t group = 1;       ///< query heads per lane
  bool columns = false;        ///< the prompt's attention comes as sums where the representation takes them
  std::size_t length = 600;    ///< tokens that may come
  std::uint64_t seed = 3;      ///< of the noise
  std::uint64_t run_seed = 0;  ///< of the representation's draws
  int pair_layer = 3;          ///< of seven, where the representation stores two layers together
  float scale = 1;             ///< of the noise
  std::size_t every = 1;       ///< of the prompt, every so many-th token is kept, the first included
  std::vector<float> keys{}, values{};              ///< [length][n_lanes][dim]; empty: Gaussian noise
  std::vector<float> queries{};                     ///< [length][query heads][dim], likewise
  std::vector<float> other_keys{}, other_values{};  ///< the same of the layer that it is stored with
  std::uint32_t layer = 0, n_layers = 1;
  const Tables* tables = nullptr;  ///< of representations that read files
  std::vector<float> inv_freq{};   ///< of the keys' rotation; empty: none
};

/// Queries are Gaussian noise. The prompt's attention is the softmax of their products with the keys, that of
/// a later token the softmax over what is stored.
class RepresentedCache {
 public:
  explicit RepresentedCache(const CacheShape& shape);

  /// The next token joins, and its query attends.
  void append(const std::vector<std::size_t>& victims = {});

  const CacheRows& rows() const { return rows_; }
  Ledger ledger() const { return codec_->ledger(rows_); }
  std::optional<std::uint64_t> sent_bits() const { return codec_->sent_bits(); }
  /// What the spec says of as many tokens without evictions.
  Ledger closed_form() const { return part_.ledger(rows_.shape(), kept_, next_ - prompt_); }

  float recorded_key(std::size_t position, std::size_t channel, std::size_t lane = 0) const {
    return keys_[(position * rows_.shape().n_lanes + lane) * rows_.shape().key_dim + channel];
  }
  float recorded_value(std::size_t position, std::size_t channel, std::size_t lane = 0) const {
    return values_[(position * rows_.shape().n_lanes + lane) * rows_.shape().key_dim + channel];
  }
  /// In the layer that this one is stored with.
  float other_key(std::size_t position, std::size_t channel, std::size_t lane = 0) const {
    return other_keys_[(position * rows_.shape().n_lanes + lane) * rows_.shape().key_dim + channel];
  }
  float other_value(std::size_t position, std::size_t channel, std::size_t lane = 0) const {
    return other_values_[(position * rows_.shape().n_lanes + lane) * rows_.shape().key_dim + channel];
  }
  float key(std::size_t position, std::size_t channel, std::size_t lane = 0) const {
    return rows_.keys(lane).row(rows_.slot_of(static_cast<Position>(position)))[channel];
  }
  float value(std::size_t position, std::size_t channel, std::size_t lane = 0) const {
    return rows_.values(lane).row(rows_.slot_of(static_cast<Position>(position)))[channel];
  }
  float query(std::size_t position, std::size_t channel, std::size_t query_head = 0) const {
    return queries_[(position * rows_.shape().n_lanes * group_ + query_head) * rows_.shape().key_dim +
                    channel];
  }
  /// Weight that a query of the token that joined last has given a position that is held.
  float weight(std::size_t position, std::size_t query_head = 0) const {
    return weights_[query_head * rows_.slots() + rows_.slot_of(static_cast<Position>(position))];
  }
  /// Attention of a query of the prompt on each position.
  std::span<const float> attention(std::size_t position, std::size_t query_head = 0) const {
    return {attention_.data() + (query_head * prompt_ + position) * prompt_, prompt_};
  }
  /// Tokens whose keys, or values, are the recorded ones in every lane.
  std::size_t exact_keys() const;
  std::size_t exact_values() const;

 private:
  void attend(std::size_t n_query_heads);
  void observe(std::size_t n_query_heads, bool columns);
  void observe_step();
  std::size_t join(const std::vector<std::size_t>& victims);
  MatrixView token(const std::vector<float>& numbers, std::size_t position) const;

  Part part_;
  CacheRows rows_;
  std::vector<float> keys_, values_;              ///< [length][n_lanes][dim]
  std::vector<float> other_keys_, other_values_;  ///< the same of another layer
  bool paired_ = false;
  std::vector<float> queries_;    ///< [length][n_query_heads][dim]
  std::vector<float> attention_;  ///< [n_query_heads][prompt][prompt]
  std::vector<float> weights_;    ///< [n_query_heads][slots], of the latest step
  std::size_t group_ = 1;
  std::vector<float> inv_freq_;
  std::unique_ptr<Representation> representation_;
  std::unique_ptr<Codec> codec_;
  std::size_t next_ = 0, prompt_ = 0, kept_ = 0;
};

}  // namespace kvsim::policy::test
