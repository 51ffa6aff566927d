#pragma once
/// One token each of many streams, all at the same position, through a model's layers at once. The streams
/// share the weights; what each attends is the caller's: a compressed cache, a whole one, anything.
///
/// A stream's numbers do not depend on the other streams or on the number of threads: every product runs
/// through one kernel with a fixed order of sums.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/base/elements.hpp"
#include "sim/base/matrix_view.hpp"
#include "sim/base/workers.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cpu {

/// Queries, keys and values of one layer and step, as attention uses them: after RoPE, rounded to the cache's
/// element type.
class StepTensors {
 public:
  StepTensors(std::span<const float> q, std::span<const float> k, std::span<const float> v,
              std::size_t streams, std::size_t dim)
      : q_(q), k_(k), v_(v), streams_(streams), dim_(dim) {}
  /// [n, head_dim] of one stream: query heads, or KV heads, [first, first + n).
  MatrixView queries(std::size_t stream, std::size_t first, std::size_t n) const {
    return view(q_, stream, first, n);
  }
  MatrixView keys(std::size_t stream, std::size_t first, std::size_t n) const {
    return view(k_, stream, first, n);
  }
  MatrixView values(std::size_t stream, std::size_t first, std::size_t n) const {
    return view(v_, stream, first, n);
  }

 private:
  MatrixView view(std::span<const float> tensor, std::size_t stream, std::size_t first, std::size_t n) const {
    return {tensor.data() + (first * streams_ + stream) * dim_, n, dim_, streams_ * dim_};
  }
  std::span<const float> q_, k_, v_;  // [heads, streams, dim]
  std::size_t streams_, dim_;
};

class StepBatch {
 public:
  /// Fills `attended` [streams, n_heads * head_dim] with every stream's weighted values in a layer.
  using Attend =
      std::function<void(std::uint32_t layer, const StepTensors& tensors, std::span<float> attended)>;
  /// Sees hidden [streams, hidden_size] after a layer.
  using LayerOutput = std::function<void(std::uint32_t layer, std::span<const float> hidden)>;

  /// `positions`: how many the run reaches, which decides the rotation of some models. `elem`: queries, keys
  /// and values are rounded to it. Everything must outlive this.
  StepBatch(const ModelConfig& config, const Weights& weights, Elem elem, std::uint64_t positions,
            Workers& workers);

  /// Processes one token of every stream. Ids below vocab_size.
  void forward(std::span<const std::int32_t> tokens, std::uint64_t position, const Attend& attend,
               const LayerOutput& output = {});
  /// [streams.size(), vocab_size] of the latest step.
  std::vector<float> logits(std::span<const std::size_t> streams);

 private:
  const ModelConfig& config_;
  const Weights& weights_;
  Elem elem_;
  Workers& workers_;
  std::vector<float> frequencies_;
  std::size_t n_ = 0;  // streams of the latest step
  std::vector<float> hidden_, normed_, projected_, q_, k_, v_, attended_, gate_, up_;
};

}  // namespace kvsim::model::cpu
