#pragma once
/// Measures a lane of a cell with a representation: attention over what its codec has stored, beside the
/// recorded row over everything.
#include <span>
#include <vector>

#include "policies/api/cache_rows.hpp"
#include "sim/attention/attention_rows.hpp"
#include "sim/replay/recorded_step.hpp"
#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

/// Attention of queries over the rows that a codec has written, through one kernel with a fixed order of
/// sums.
class StoredAttention {
 public:
  /// What a query sees.
  struct Sight {
    double scale = 1;            ///< factor on q.k
    double cap = 0;              ///< of scale * q.k, as cap_logits() takes it
    float sink = kNoSink;        ///< logit of the query head's sink
    policy::Position first = 0;  ///< earlier positions are beyond the layer's window
    /// A token that is attended beside the slots: the query's own, if it has been evicted. Empty: none.
    std::span<const float> own_key{}, own_value{};
    /// The columns that the query reads, ascending; empty: all of them.
    std::span<const std::size_t> read{};

    std::size_t columns(std::size_t slots) const { return slots + (own_key.empty() ? 0 : 1); }
  };

  /// Computes weights = softmax(scale * q.k, capped, + bias) of one query of a lane over the slots, and
  /// behind them the token beside them, and `out` [value_dim], the sum of the values by these weights.
  /// Weights of slots that the query does not see or read are 0. Where the lane has a row for the rest, that
  /// is attended, too, with a weight of its own; a sink has its share of the softmax. The bits depend on the
  /// slots and their order alone. At least one slot is seen.
  void attend(const policy::CacheRows& rows, std::size_t lane, std::span<const float> query,
              const Sight& sight, std::span<float> weights, float* out);
  /// The logits of the latest call, as weights; not defined where they are 0.
  std::span<const float> logits() const { return logits_; }
  /// The columns that the latest call saw and read, ascending.
  std::span<const std::size_t> seen() const { return seen_; }
  /// The weight of the row for the rest; 0: there is none.
  float rest_weight() const { return rest_weight_; }
  /// The weight of the sink; 0: there is none.
  float sink_weight() const { return sink_weight_; }

 private:
  std::vector<float> scaled_, logits_, seen_logits_;
  std::vector<std::size_t> seen_;
  float rest_weight_ = 0, sink_weight_ = 0;
};

class StoredMeasures {
 public:
  /// `lane`: of the group that `tensors` were read for; `lane_of_unit`: the same lane in the cache's unit.
  StoredMeasures(const GroupTensors& tensors, std::size_t lane, std::size_t lane_of_unit, Cache& cache,
                 LaneOutcome& out);

  /// The queries of the step attend. The cache is that of the step.
  void step(const RecordedStep& recorded, bool each_step);
  /// After the last step.
  void end();
  /// What the steps since the last clear() gave: [steps][group][value_dim].
  std::span<const float> outputs() const { return outputs_; }
  void clear() { outputs_.clear(); }

 private:
  /// Of what the unit takes.
  double lane_part(std::uint64_t bits) const;
  void compare(const RecordedStep& recorded, std::size_t g, std::span<const float> weights);

  const GroupTensors* tensors_;
  std::size_t lane_, lane_of_unit_;
  Cache* cache_;
  LaneOutcome* out_;
  StoredAttention attention_;
  std::vector<float> outputs_;
  double variation_ = 0, overlap_ = 0;  ///< of the present step, summed over query heads
  TopEntries top_;
};

}  // namespace kvsim::sim
