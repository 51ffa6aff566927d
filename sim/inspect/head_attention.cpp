#include "sim/inspect/head_attention.hpp"

#include <algorithm>
#include <cmath>

#include "policies/parts/rows/norms.hpp"
#include "sim/attention/prompt_attention.hpp"
#include "sim/attention/prompt_pass.hpp"
#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::sim {
namespace {

/// Sums over the rows of one head.
class Habits {
 public:
  /// Adds the row of the query at position row.size() - 1, which sees `visible` positions.
  void add(std::span<const float> row, std::size_t visible, const HeadStudy& study) {
    const std::size_t n = row.size(), local = n - std::min(study.local, n);
    double entropy = 0, largest = 0, total = 0;
    for (const float a : row) total += a;  // 1 up to rounding
    for (std::size_t j = n - visible; j < n; ++j) {
      const double a = row[j] / total;
      if (a > 0) entropy -= a * std::log2(a);
      if (j < study.sinks) sums_.sink += a;
      if (j >= local) sums_.local += a;
      sums_.distance += a * static_cast<double>(n - 1 - j);
      largest = std::max(largest, a);
    }
    sums_.entropy += entropy;
    sums_.largest += largest;
    rows_ += 1;
    if (visible < 2) return;
    entropy_shares_ += entropy / std::log2(static_cast<double>(visible));
    rows_of_several_ += 1;
  }

  HeadAttention means() const {
    HeadAttention out = sums_;
    for (double* sum : {&out.sink, &out.local, &out.entropy, &out.distance, &out.largest}) *sum /= rows_;
    if (rows_of_several_ > 0) out.entropy_share = entropy_shares_ / rows_of_several_;
    return out;
  }

 private:
  HeadAttention sums_;
  double entropy_shares_ = 0, rows_ = 0, rows_of_several_ = 0;
};

}  // namespace

HeadsFound head_attention(const trace::Sequence& sequence, const HeadStudy& study, Progress& progress) {
  const std::size_t prompt = sequence.prompt_length(), first = prompt - std::min(study.rows, prompt);
  if (first == sequence.length())
    usage_error("has no row to look at: no prompt row is asked for and nothing was generated",
                sequence.source().name());
  require_attention(sequence, first);
  const trace::Model& model = sequence.model();
  const std::size_t group = model.group();
  const std::vector<LaneGroup> lanes = lane_groups(model, false);
  HeadsFound out;
  out.rows = sequence.length() - first;
  out.heads.resize(lanes.size() * group);
  progress.total.store(lanes.size() * lane_rows_work(model, out.rows), std::memory_order_relaxed);
  Workers workers(study.threads);
  workers.run(lanes.size(), [&](std::size_t i) {
    const GroupTensors tensors(sequence, lanes[i], {});
    std::vector<Habits> habits(group);
    for_lane_rows(tensors, first, sequence.length(), progress, [&](const RowBlock& rows) {
      for (std::size_t g = 0; g < group; ++g)
        for (std::size_t s = 0; s < rows.size(); ++s) {
          const std::size_t n = rows.first() + s + 1;
          habits[g].add({rows.row(0, g, s), n}, n - model.first_seen(lanes[i].layer, n - 1), study);
        }
    });
    for (std::size_t g = 0; g < group; ++g) out.heads[i * group + g] = habits[g].means();
  });
  return out;
}

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
