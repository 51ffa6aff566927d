#pragma once
/// The future that an oracle is given: every measured step of a unit.
#include <vector>

#include "policies/api/oracle.hpp"
#include "sim/attention/group_tensors.hpp"

namespace kvsim::sim {

class UnitFuture final : public policy::Future {
 public:
  /// Covers the queries from `first_position` to the end of the sequence. `first_position` is the prompt's
  /// length, or one less when the last prompt row is measured again. The rows are computed in blocks of
  /// `block` steps, as the replay measures them. `tensors` must have the queries.
  UnitFuture(const GroupTensors& tensors, std::size_t first_lane, std::size_t n_lanes,
             std::size_t first_position, std::size_t block);

  std::size_t prompt() const override { return tensors_->sequence().prompt_length() - first(); }
  std::size_t first() const override { return tensors_->first_held(); }
  std::size_t first_position() const override { return first_ - first(); }
  std::size_t steps() const override { return length_ - first_; }
  MatrixView attention() const override {
    return {attention_.data() + first(), steps(), length_ - first(), length_};
  }
  MatrixView queries(int query_head) const override;
  MatrixView keys(int lane) const override {
    const MatrixView all = tensors_->keys(first_lane_ + static_cast<std::size_t>(lane));
    return {all.data + first() * all.stride, all.rows - first(), all.cols, all.stride};
  }
  double scale() const override { return tensors_->sequence().model().attn_scale; }

 private:
  const GroupTensors* tensors_;
  std::size_t first_lane_, first_, length_;
  std::vector<float> attention_;
};

}  // namespace kvsim::sim
