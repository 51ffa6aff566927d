#pragma once
/// Tokens of many streams through a model's layers at once: one of each, or a block of consecutive ones. They
/// share the weights; what each attends is the caller's: a compressed cache, a whole one, anything.
///
/// A token's numbers do not depend on the others of the batch or on the number of threads: every product runs
/// through one kernel with a fixed order of sums.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/base/elements.hpp"
#include "sim/base/matrix_view.hpp"
#include "sim/base/workers.hpp"
#include "traces/model/cpu/layer_halves.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cpu {

/// Queries, keys and values of one layer and batch, as attention uses them: after RoPE, rounded to the
/// cache's element type.
class StepTensors {
 public:
  StepTensors(std::span<const float> q, std::span<const float> k, std::span<const float> v, std::size_t rows,
              std::size_t dim, std::size_t value_dim)
      : q_(q), k_(k), v_(v), rows_(rows), dim_(dim), value_dim_(value_dim) {}
  /// [n, head_dim] of one token of the batch: query heads, or KV heads, [first, first + n).
  MatrixView queries(std::size_t row, std::size_t first, std::size_t n) const {
    return view(q_, row, first, n, dim_);
  }
  MatrixView keys(std::size_t row, std::size_t first, std::size_t n) const {
    return view(k_, row, first, n, dim_);
  }
  MatrixView values(std::size_t row, std::size_t first, std::size_t n) const {
    return view(v_, row, first, n, value_dim_);
  }

 private:
  MatrixView view(std::span<const float> tensor, std::size_t row, std::size_t first, std::size_t n,
                  std::size_t dim) const {
    return {tensor.data() + (first * rows_ + row) * dim, n, dim, rows_ * dim};
  }
  std::span<const float> q_, k_, v_;  // [heads, rows, dim]
  std::size_t rows_, dim_, value_dim_;
};

class StepBatch {
 public:
  /// Fills `attended` [rows, n_heads * value_dim()] with every token's weighted values in a layer.
  using Attend =
      std::function<void(std::uint32_t layer, const StepTensors& tensors, std::span<float> attended)>;
  /// Sees hidden [rows, hidden_size] after a layer.
  using LayerOutput = std::function<void(std::uint32_t layer, std::span<const float> hidden)>;

  /// Says which rows of a batch go on after what they have attended in a layer, ascending: the others end
  /// there.
  using Narrow = std::function<std::span<const std::size_t>(std::uint32_t layer)>;

  /// `positions`: how many the run reaches, which decides the rotation of some models. `elem`: queries, keys
  /// and values are rounded to it. Everything must outlive this.
  StepBatch(const ModelConfig& config, const Weights& weights, Elem elem, std::uint64_t positions,
            Workers& workers);

  /// A token of the text, and its position.
  struct Row {
    std::int32_t token = 0;  ///< below vocab_size
    std::uint64_t position = 0;
  };
  /// Processes the tokens; without `narrow` all of them in every layer.
  void forward(std::span<const Row> rows, const Attend& attend, const LayerOutput& output = {},
               const Narrow& narrow = {});
  /// [rows.size(), vocab_size] of these of the latest batch, among those that have not ended.
  std::vector<float> logits(std::span<const std::size_t> rows);

 private:
  const ModelConfig& config_;
  const Weights& weights_;
  Elem elem_;
  Workers& workers_;
  std::vector<float> frequencies_, other_frequencies_;
  std::size_t n_ = 0;  // rows of the latest batch that have not ended
  std::vector<float> hidden_, normed_, entered_, projected_, q_, k_, v_, attended_;
  FeedForwardSpace space_;
};

}  // namespace kvsim::model::cpu
