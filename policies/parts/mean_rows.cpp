#include "policies/parts/mean_rows.hpp"

#include <algorithm>

namespace kvsim::policy {

void MeanRows::add(const PromptRows& block) {
  if (mean_.empty()) {
    length_ = block.prompt_length;
    mean_.resize(std::min(rows_, length_) * length_);
  }
  const std::size_t first = query(0);
  for (std::size_t i = 0; i < block.p.rows; ++i) {
    const std::size_t position = block.first_query + i;
    if (position < first) continue;
    float* const mean = mean_.data() + (position - first) * length_;
    for (std::size_t j = 0; j < block.p.cols; ++j) mean[j] += weight_ * block.p(i, j);
  }
}

}  // namespace kvsim::policy
