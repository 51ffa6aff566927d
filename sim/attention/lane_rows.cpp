#include "sim/attention/lane_rows.hpp"

#include <algorithm>

#include "sim/attention/prompt_pass.hpp"

namespace kvsim::sim {

void for_lane_rows(const GroupTensors& tensors, std::size_t first, std::size_t end, Progress& progress,
                   const std::function<void(const RowBlock&)>& look) {
  RowBlock block(tensors);
  for (std::size_t n; first < end; first += n) {
    progress.check();
    n = std::min(kPromptBlock, end - first);
    block.compute(first, n);
    look(block);
    progress.advance(lane_rows_work(tensors.sequence().model(), n));
  }
}

std::uint64_t lane_rows_work(const trace::Model& model, std::size_t positions) {
  return std::uint64_t{model.group()} * positions;
}

}  // namespace kvsim::sim
