#include "sim/attention/unit_future.hpp"

#include <algorithm>
#include <numeric>

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
  std::vector<float> rows(block * length_), queries(block * model.head_dim), of_lane;
  const bool sinks = !model.sinks.empty();
  for (std::size_t position = first_; position < length_; position += block) {
    const std::size_t n = std::min(block, length_ - position), width = position + n;
    for (std::size_t head = 0; head < heads; ++head) {
      reader.rows(first_lane * group + head, position, n, std::span(queries).first(n * model.head_dim),
                  rows.data(), width);
      float* to = attention_.data() + (position - first_) * length_;
      if (sinks && head % group == 0) of_lane.assign(n * length_, 0.0F);
      if (sinks) to = of_lane.data();
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < width; ++j)
          to[i * length_ + j] += rows[i * width + j] / static_cast<float>(heads);
      if (!sinks || head % group + 1 < group) continue;
      // A loss is a share of what a lane's row gives to keys.
      for (std::size_t i = 0; i < n; ++i) {
        const std::span<const float> row = std::span(of_lane).subspan(i * length_, width);
        const float sum = std::accumulate(row.begin(), row.end(), 0.0F) * static_cast<float>(n_lanes);
        for (std::size_t j = 0; j < width && sum > 0; ++j)
          attention_[(position - first_ + i) * length_ + j] += row[j] / sum;
      }
    }
  }
}

MatrixView UnitFuture::queries(int query_head) const {
  const std::size_t group = tensors_->sequence().model().group();
  const MatrixView all = tensors_->queries(first_lane_ * group + static_cast<std::size_t>(query_head));
  return {all.row(first_).data(), steps(), all.cols, all.stride};
}

}  // namespace kvsim::sim
