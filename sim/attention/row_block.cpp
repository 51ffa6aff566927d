#include "sim/attention/row_block.hpp"

#include <algorithm>

namespace kvsim::sim {
namespace {

/// The most decode steps per block, and the most floats that their rows take.
constexpr std::size_t kDecodeBlock = 32;
constexpr std::size_t kDecodeFloats = std::size_t{1} << 23;

}  // namespace

std::size_t decode_block(const trace::Sequence& sequence) {
  const std::size_t row_floats = sequence.model().n_q_heads * sequence.length();
  return std::clamp<std::size_t>(kDecodeFloats / row_floats, 1, kDecodeBlock);
}

void RowBlock::compute(std::size_t first, std::size_t n) {
  const GroupTensors& tensors = *tensors_;
  const trace::Model& model = tensors.sequence().model();
  const std::size_t dim = model.head_dim, heads = std::size_t{tensors.group().n_lanes} * model.group();
  first_ = first;
  n_ = n;
  group_ = model.group();
  rows_.resize(heads * n * width());
  dim_ = dim;
  queries_.resize(heads * n * dim);
  for (std::size_t head = 0; head < heads; ++head) {
    const std::span<float> queries(queries_.data() + head * n * dim, n * dim);
    reader_.rows(head, first, n, queries, rows_.data() + head * n * width(), width());
  }
}

}  // namespace kvsim::sim
