#pragma once
/// One eviction group of cells in one unit of a lane group: its eviction policy, what every cell holds, and
/// how a token joins and is attended.
#include <memory>
#include <string>
#include <vector>

#include "sim/attention/row_block.hpp"
#include "sim/replay/plan.hpp"
#include "sim/replay/resident_set.hpp"

namespace kvsim::sim {

/// One cell in one unit.
struct ManagedCache {
  std::size_t cell = 0, budget = 0;
  std::size_t capacity = 0;  ///< most that a query may attend while a decoder manages the unit
  ResidentSet residents;
  std::unique_ptr<policy::Decoder> decoder{};
  std::size_t own_slot = 0;  ///< of the token that joined last
  /// What the present step's query attends: the residents, and its own token. They are the same but at step
  /// 0, where the last prompt token is asked again although the policy may not have kept it.
  std::span<const policy::Position> attended{};
  policy::Position own = 0;                  ///< token of the present step
  bool held_own_at_cut = true;               ///< the residents after the prompt include its last token
  std::vector<policy::Position> with_own{};  ///< storage of `attended` where they do not
  std::vector<std::size_t> held{};           ///< positions attended at each step of the present block

  bool attends(policy::Position position) const { return position == own || residents.holds(position); }
};

class UnitDriver {
 public:
  /// Lanes [first_lane, first_lane + n_lanes) of the group.
  UnitDriver(const EvictionGroup& eviction_group, const GroupTensors& tensors, std::size_t first_lane,
             std::size_t n_lanes, std::unique_ptr<policy::Eviction> eviction)
      : eviction_group_(&eviction_group),
        tensors_(&tensors),
        first_lane_(first_lane),
        n_lanes_(n_lanes),
        eviction_(std::move(eviction)) {}

  const EvictionGroup& eviction_group() const { return *eviction_group_; }
  policy::Eviction& eviction() { return *eviction_; }
  std::size_t first_lane() const { return first_lane_; }
  std::size_t n_lanes() const { return n_lanes_; }
  bool covers(std::size_t lane) const { return lane >= first_lane_ && lane < first_lane_ + n_lanes_; }
  std::vector<ManagedCache>& cells() { return cells_; }

  /// The prompt is over, or about to be streamed: a cell begins, with a budget and a log of stays if wanted.
  void start(std::size_t cell, std::size_t budget, bool log);
  /// The token at `position` joins; somebody leaves if the decoder says so. `step`: 0 within the prompt.
  void admit(ManagedCache& cell, std::size_t position, std::uint32_t step);
  /// Step 0: the last prompt token's query attends once more. Nobody leaves, nothing joins.
  void ask_again(ManagedCache& cell, std::size_t position);
  /// The decoder sees what its residents got of the row of the token that just joined. `rows` must hold its
  /// position if the eviction group needs decode rows.
  void show(ManagedCache& cell, std::size_t position, const RowBlock& rows);

 private:
  void check_kept(const std::vector<policy::Position>& keep, std::size_t most) const;
  void check_victims(std::size_t position, std::size_t n_slots, bool full);
  std::string where() const;

  const EvictionGroup* eviction_group_;
  const GroupTensors* tensors_;
  std::size_t first_lane_, n_lanes_;
  std::unique_ptr<policy::Eviction> eviction_;
  std::vector<ManagedCache> cells_;
  // Scratch.
  std::vector<std::size_t> victims_, distinct_;
  std::vector<float> seen_;
  std::vector<double> mass_;
};

}  // namespace kvsim::sim
