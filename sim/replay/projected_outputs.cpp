#include "sim/replay/projected_outputs.hpp"

#include "sim/attention/attention_rows.hpp"
#include "sim/attention/output_distance.hpp"

namespace kvsim::sim {

ProjectedOutputs::ProjectedOutputs(const GroupTensors& tensors, std::vector<LayerOutcome*> cells)
    : tensors_(&tensors),
      cells_(std::move(cells)),
      hidden_(tensors.sequence().model().hidden_size),
      differences_(cells_.size()) {}

void ProjectedOutputs::begin(std::size_t n_steps) {
  n_steps_ = n_steps;
  whole_.assign(n_steps * hidden_, 0.0F);
  for (std::vector<float>& sum : differences_) sum.clear();
}

void ProjectedOutputs::add_whole(std::size_t lane, std::span<const float> outputs) {
  add(lane, outputs, whole_);
}

void ProjectedOutputs::add_difference(std::size_t cell, std::size_t lane, std::span<const float> outputs) {
  differences_[cell].resize(n_steps_ * hidden_);
  add(lane, outputs, differences_[cell]);
}

void ProjectedOutputs::add(std::size_t lane, std::span<const float> outputs, std::vector<float>& sum) {
  const std::size_t group = tensors_->sequence().model().group(),
                    dim = tensors_->sequence().model().v_head_dim;
  product_.resize(n_steps_ * hidden_);
  for (std::size_t g = 0; g < group; ++g) {
    multiply({outputs.data() + g * n_steps_ * dim, n_steps_, dim, dim},
             tensors_->output_weights(lane * group + g), product_.data());
    for (std::size_t i = 0; i < product_.size(); ++i) sum[i] += product_[i];
  }
}

void ProjectedOutputs::end() {
  for (std::size_t cell = 0; cell < cells_.size(); ++cell)
    for (std::size_t s = 0; s < n_steps_; ++s) {
      OutputDistance distance;  // stays as it is for a cell that loses nothing in any lane
      if (!differences_[cell].empty())
        distance =
            output_distance(whole_.data() + s * hidden_, differences_[cell].data() + s * hidden_, hidden_);
      cells_[cell]->projected_error += distance.error;
      cells_[cell]->projected_cosine += distance.cosine;
    }
}

}  // namespace kvsim::sim
