#pragma once
/// What oracles are told: a unit's generated tokens, all of them.
#include <vector>

#include "policies/api/oracle.hpp"
#include "sim/group_tensors.hpp"

namespace kvsim::sim {

class UnitFuture final : public policy::Future {
 public:
  /// Computes the rows in blocks of `block` steps, those replay measures by. `tensors` hold the queries.
  UnitFuture(const GroupTensors& tensors, std::size_t first_lane, std::size_t n_lanes, std::size_t block);

  std::size_t steps() const override { return steps_; }
  MatrixView attention() const override { return {attention_.data(), steps_, length_, length_}; }
  MatrixView queries(int query_head) const override;
  MatrixView keys(int lane) const override {
    return tensors_->keys(first_lane_ + static_cast<std::size_t>(lane));
  }
  double scale() const override { return tensors_->sequence().model().attn_scale; }

 private:
  const GroupTensors* tensors_;
  std::size_t first_lane_, steps_, length_;
  std::vector<float> attention_;
};

}  // namespace kvsim::sim
