#pragma once
/// Feeds a selection one cache of a unit by hand: what is kept of a prompt, then tokens one by one.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"

namespace kvsim::policy::test {

struct SelectedShape {
  std::string selection{};  ///< as after '+'
  std::size_t prompt = 0;   ///< tokens that begin() finds, at positions 0 .. prompt - 1
  std::size_t n_lanes = 1, dim = 4;
  std::size_t group = 1;                ///< query heads per lane
  std::size_t length = 600;             ///< tokens that may come
  std::uint64_t seed = 3;               ///< of the noise
  std::uint64_t run_seed = 0;           ///< of the selection's draws
  std::size_t every = 1;                ///< of the prompt, every so many-th token is kept, the first included
  std::vector<float> keys{}, values{};  ///< [length][n_lanes][dim]; what is missing is Gaussian noise
  std::vector<float> queries{};         ///< [length][n_lanes * group][dim]
  int layer = 5, n_layers = 9;
  const Tables* tables = nullptr;  ///< of selections that read files
  std::vector<float> inv_freq{};   ///< of the keys' rotation; empty: none
};

class SelectedCache {
 public:
  explicit SelectedCache(SelectedShape shape);

  /// The next token joins, and its queries choose.
  void append(const std::vector<std::size_t>& victims = {});
  /// The last prompt token asks once more.
  void ask_again();

  /// Positions that a query head reads at the latest step, its own included.
  const std::set<Position>& read(std::size_t query_head = 0) const { return read_[query_head]; }
  std::uint64_t index_bits() const { return selector_->index_bits(); }
  std::optional<int> leader() const { return selection_->leader(); }
  std::uint64_t index_bits_read() const { return reads_.index_bits; }
  const std::vector<Position>& slots() const { return slots_; }
  std::size_t position() const { return next_ - 1; }  ///< of the latest token
  static constexpr double kScale = 0.5;

  float key(std::size_t position, std::size_t channel, std::size_t lane = 0) const {
    return shape_.keys[(position * shape_.n_lanes + lane) * shape_.dim + channel];
  }
  float value(std::size_t position, std::size_t channel, std::size_t lane = 0) const {
    return shape_.values[(position * shape_.n_lanes + lane) * shape_.dim + channel];
  }
  float query(std::size_t position, std::size_t channel, std::size_t query_head = 0) const {
    return shape_.queries[(position * shape_.n_lanes * shape_.group + query_head) * shape_.dim + channel];
  }
  /// q.k, without the scale.
  double logit(std::size_t query_position, std::size_t key_position, std::size_t query_head = 0) const;
  const Part& part() const { return part_; }

 private:
  StoredTokens tokens() const { return {slots_, lanes_}; }
  void ask(std::size_t position);

  SelectedShape shape_;
  Part part_;
  std::vector<LaneRows> lanes_;
  std::unique_ptr<Selection> selection_;
  std::unique_ptr<Selector> selector_;
  std::vector<Position> slots_;
  std::size_t next_ = 0;
  Reads reads_;
  std::vector<std::set<Position>> read_;
};

}  // namespace kvsim::policy::test
