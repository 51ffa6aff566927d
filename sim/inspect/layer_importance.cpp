#include "sim/inspect/layer_importance.hpp"

#include <string>

#include "policies/parts/rows/window_importance.hpp"
#include "sim/attention/prompt_pass.hpp"
#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"
#include "traces/format/recorded_rows.hpp"

namespace kvsim::sim {
namespace {

void check(const trace::Sequence& sequence, std::size_t rows) {
  const std::string& name = sequence.source().name();
  if (rows == 0) usage_error("no prompt row to look at");
  if (sequence.prompt_length() <= rows)
    usage_error("has a prompt of " + std::to_string(sequence.prompt_length()) +
                    " tokens; importance is what the last " + std::to_string(rows) +
                    " pay to those before them",
                name, "Take a longer prompt or fewer rows.");
  if (trace::first_row(sequence) > sequence.prompt_length() - rows)
    usage_error("stores queries from position " + std::to_string(sequence.first_query()) +
                    " on; importance needs those of the last " + std::to_string(rows) + " of " +
                    std::to_string(sequence.prompt_length()) + " prompt positions",
                name, "Capture again with --queries all or --queries window:W, W at least as many.");
}

std::vector<double> importance(const trace::Sequence& sequence, LaneGroup lane, const ImportanceStudy& study,
                               Progress& progress) {
  const GroupTensors tensors(sequence, lane, {});
  policy::WindowImportance w(static_cast<int>(sequence.model().group()), study.rows, study.pooling);
  const Subscription subscription{&w, 0, 1, {study.rows}};
  replay_prompt(tensors, {&subscription, 1}, progress);
  return w.values();
}

}  // namespace

std::vector<std::vector<double>> layer_importance(const trace::Sequence& sequence,
                                                  const ImportanceStudy& study, Progress& progress) {
  check(sequence, study.rows);
  const trace::Model& model = sequence.model();
  const std::size_t prompt = sequence.prompt_length();
  progress.total.store(
      std::uint64_t{model.n_layers} * model.n_q_heads * (prompt - first_prompt_row(sequence, study.rows)),
      std::memory_order_relaxed);
  std::vector<std::vector<double>> layers(model.n_layers, std::vector<double>(prompt - study.rows));
  Workers workers(study.threads);
  workers.run(model.n_layers, [&](std::size_t layer) {
    std::vector<double>& mean = layers[layer];
    for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
      const std::vector<double> w =
          importance(sequence, {static_cast<std::uint32_t>(layer), head, 1}, study, progress);
      // Of a layer with a window, what it holds of the prompt, which is its end.
      for (std::size_t j = 0; j < w.size(); ++j)
        mean[mean.size() - w.size() + j] += w[j] / static_cast<double>(model.n_kv_heads);
    }
  });
  return layers;
}

}  // namespace kvsim::sim
