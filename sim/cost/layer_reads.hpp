#pragma once
/// What a step reads of a layer's cache where a selection chooses, by the selection's own statement.
#include <cstdint>
#include <optional>

#include "policies/api/spec.hpp"
#include "sim/cost/model.hpp"

namespace kvsim::cost {

struct LayerReads {
  double head_share = 1;  ///< of the tokens that a lane holds, those that one query head reads
  /// The same of the query heads of a KV head together, at most: where they agree it is less.
  double lane_share = 1;
  double index_bytes_read = 0, index_bytes = 0;  ///< of the index, in all KV heads of the layer
  double run_tokens = 0;  ///< that stand beside each other in what a lane reads; 0: all that it holds
};

/// What the selection states of a layer whose lanes hold `tokens` each, at least one.
policy::ReadCount read_count(const policy::Part& selection, const Model& model, std::uint64_t layer,
                             std::uint64_t tokens);
/// `tokens`: that a lane of the layer holds, mean. Without a selection everything is read.
LayerReads layer_reads(const std::optional<policy::Part>& selection, const Model& model, std::uint64_t layer,
                       double tokens);

}  // namespace kvsim::cost
