#pragma once
/// One cache of which queries read a part: what its selector names at each step.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/selection.hpp"
#include "sim/base/matrix_view.hpp"

namespace kvsim::sim {

class SelectedReads {
 public:
  /// `name`: of the selection, for messages.
  SelectedReads(std::string name, std::unique_ptr<policy::Selector> selector, std::size_t n_lanes,
                std::size_t group)
      : name_(std::move(name)),
        selector_(std::move(selector)),
        n_lanes_(n_lanes),
        group_(group),
        lanes_(n_lanes) {}

  /// The prompt has been cut.
  void begin(const policy::Prompt& prompt, const policy::StoredTokens& tokens) {
    selector_->begin(prompt, tokens);
  }
  /// A token has joined the cache: it took the slot of the first victim, and those of the others closed up.
  /// `slots`: as many as there are now. The selector hears of it at the next step.
  void joined(std::span<const std::size_t> victims, std::size_t own_slot, std::size_t slots);
  /// Chooses what the queries of a step read. Throws Error(bug) where the selector names a slot that is not
  /// there, or one twice.
  void select(const policy::Asking& asking, const policy::StoredTokens& tokens);

  std::size_t n_lanes() const { return n_lanes_; }

  // Of the latest step. A column is a slot; where the query's token has none, one more behind them is its
  // own.
  /// The columns that a query head reads, ascending; its own token's is among them.
  std::span<const std::size_t> of(std::size_t query_head) const { return reads_.of(query_head); }
  /// Columns that the query heads of a lane read together.
  std::size_t lane_tokens(std::size_t lane) const { return lanes_[lane].now.size(); }
  /// How many of their tokens were read at the step before, too.
  std::size_t lane_hits(std::size_t lane) const { return lanes_[lane].hits; }
  /// Whether there was a step before.
  bool has_previous() const { return steps_ > 1; }
  /// What choosing has read of the index, in all lanes.
  std::uint64_t index_bits_read() const { return reads_.index_bits; }
  /// What the index takes, in all lanes.
  std::uint64_t index_bits() const { return selector_->index_bits(); }

 private:
  struct Lane {
    std::vector<policy::Position> before{}, now{};  ///< positions that its query heads read, ascending
    std::size_t hits = 0;
  };
  void check(std::vector<std::size_t>& columns, std::size_t own, std::size_t n_columns) const;
  void count(const policy::Asking& asking, const policy::StoredTokens& tokens);

  std::string name_;
  std::unique_ptr<policy::Selector> selector_;
  std::size_t n_lanes_, group_;
  policy::Reads reads_;
  std::vector<Lane> lanes_;
  std::size_t steps_ = 0;
  bool pending_ = false;
  std::size_t own_slot_ = 0, moved_from_ = 0;
  std::vector<std::uint8_t> is_read_;  // scratch, per column
};

/// The attention that the queries of a step pay to the slots of a cache, gathered from full attention rows.
struct SlotAttention {
  MatrixView attention{};          ///< [n_query_heads, slots]; empty without Needs::decode_rows
  std::span<const double> mass{};  ///< [n_query_heads]: sum over the slots, and the sink's share
};

/// Gathers the attention on a cache's slots into buffers that it reuses. The result is valid until the next
/// call.
class SlotGather {
 public:
  /// `rows`: [n_query_heads, positions], the full attention rows of the step. `slots`: the position in each
  /// slot. `sinks`: a sink has what a row does not give to positions.
  SlotAttention operator()(MatrixView rows, std::span<const policy::Position> slots, bool sinks);
  /// The same of queries that read a part: the attention on slots that a head does not read is 0.
  SlotAttention operator()(MatrixView rows, std::span<const policy::Position> slots,
                           const SelectedReads& reads, bool sinks);

 private:
  void add_sinks(MatrixView rows);

  std::vector<float> attention_;
  std::vector<double> mass_;
};

}  // namespace kvsim::sim
