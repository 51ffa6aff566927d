#include "sim/attention/unit_future.hpp"

#include <algorithm>

#include "sim/attention/query_reader.hpp"

namespace kvsim::sim {

UnitFuture::UnitFuture(const GroupTensors& tensors, std::size_t first_lane, std::size_t n_lanes,
                       std::size_t first_position, std::size_t block)
    : tensors_(&tensors),
      first_lane_(first_lane),
      first_(first_position),
      length_(tensors.sequence().length()),
      attention_((length_ - first_) * length_) {
  const trace::Model& model = tensors.sequence().model();
  QueryReader reader(tensors);
  const std::size_t group = model.group(), heads = n_lanes * group;
  std::vector<float> rows(block * length_), queries(block * model.head_dim);
  for (std::size_t position = first_; position < length_; position += block) {
    const std::size_t n = std::min(block, length_ - position), width = position + n;
    for (std::size_t head = 0; head < heads; ++head) {
      reader.rows(first_lane * group + head, position, n, std::span(queries).first(n * model.head_dim),
                  rows.data(), width);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < width; ++j)
          attention_[(position - first_ + i) * length_ + j] +=
              rows[i * width + j] / static_cast<float>(heads);
    }
  }
}

MatrixView UnitFuture::queries(int query_head) const {
  const std::size_t group = tensors_->sequence().model().group();
  const MatrixView all = tensors_->queries(first_lane_ * group + static_cast<std::size_t>(query_head));
  return {all.row(first_).data(), steps(), all.cols, all.stride};
}

}  // namespace kvsim::sim
