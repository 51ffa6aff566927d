#include "sim/inspect/key_norm_attention.hpp"

#include "policies/parts/rows/norms.hpp"
#include "sim/attention/mean_attention.hpp"
#include "sim/attention/prompt_pass.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::sim {

void for_key_norm_attention(const trace::Sequence& sequence, unsigned threads, Progress& progress,
                            const std::function<void(std::size_t lane, const KeyNormAttention&)>& look) {
  const trace::Model& model = sequence.model();
  const std::size_t prompt = sequence.prompt_length();
  const RowRequirement seen =
      row_requirement(sequence, MeanAttention(RowMean::visible, -1, 1), "the attention each key receives");
  const std::vector<LaneGroup> lanes = lane_groups(model, false);
  progress.total.store(std::uint64_t{model.n_layers} * model.n_q_heads * seen.rows,
                       std::memory_order_relaxed);
  Workers workers(threads);
  workers.run(lanes.size(), [&](std::size_t i) {
    const GroupTensors tensors(sequence, lanes[i], {});
    MeanAttention attention(RowMean::visible, model.layer_window[lanes[i].layer], model.group());
    const Subscription subscription{&attention, 0, 1, seen};
    replay_prompt(tensors, {&subscription, 1}, progress);
    KeyNormAttention keys{{}, attention.values()};
    for (std::size_t j = tensors.first_held(); j < prompt; ++j)
      keys.norm.push_back(policy::euclidean_norm(tensors.keys(0).row(j)));
    look(i, keys);
  });
}

}  // namespace kvsim::sim
