#include "sim/inspect/layer_importance.hpp"

#include <algorithm>
#include <string>

#include "policies/parts/rows/window_rows.hpp"
#include "sim/attention/prompt_attention.hpp"
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

namespace {

/// Attention that exceeds the average by a smaller share counts as the average: the excess may be rounding.
constexpr double kRounding = 1e-5;

/// Finds the positions before the split that are pivotal in some early row and in some late row.
class PivotalPositions {
 public:
  PivotalPositions(const PersistenceStudy& study, const trace::Model& model, std::uint32_t layer)
      : study_(study), model_(model), layer_(layer), early_(study.split), late_(study.split) {}

  void look(const RowBlock& rows) {
    const std::size_t group = rows.lane(0).rows / rows.size();
    for (std::size_t s = 0; s < rows.size(); ++s) {
      const std::size_t position = rows.first() + s, n = std::min(position + 1, study_.split);
      std::vector<char>& seen = position < study_.split ? early_ : late_;
      const double least = threshold(position) * static_cast<double>(group);  // of a sum over the group
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t g = 0; g < group; ++g) sum += static_cast<double>(rows.row(0, g, s)[j]);
        if (sum > least) seen[j] = 1;
      }
    }
  }

  LanePersistence counts() const {
    LanePersistence out;
    for (std::size_t j = 0; j < study_.split; ++j) {
      out.early += early_[j] ? 1 : 0;
      out.late += late_[j] ? 1 : 0;
      out.both += early_[j] && late_[j] ? 1 : 0;
    }
    return out;
  }

 private:
  double threshold(std::size_t position) const {
    std::size_t n = study_.split;
    if (study_.average == PersistenceStudy::Average::row)
      n = position + 1 - model_.first_seen(layer_, position);
    return study_.times / static_cast<double>(n) * (1 + kRounding);
  }

  const PersistenceStudy& study_;
  const trace::Model& model_;
  std::uint32_t layer_;
  std::vector<char> early_, late_;
};

}  // namespace

std::vector<LanePersistence> persistence(const trace::Sequence& sequence, const PersistenceStudy& study,
                                         Progress& progress) {
  const std::size_t length = sequence.length();
  if (study.split == 0 || study.split >= length)
    usage_error("has " + std::to_string(length) + " positions; a split at " + std::to_string(study.split) +
                    " leaves no rows on one side",
                sequence.source().name());
  const std::size_t first = study.early_rows == 0 ? 0 : study.split - std::min(study.early_rows, study.split);
  const std::size_t end = study.late_rows == 0 ? length : std::min(length, study.split + study.late_rows);
  require_attention(sequence, first);
  const trace::Model& model = sequence.model();
  const std::vector<LaneGroup> lanes = lane_groups(model, false);
  progress.total.store(lanes.size() * lane_rows_work(model, end - first), std::memory_order_relaxed);
  std::vector<LanePersistence> out(lanes.size());
  Workers workers(study.threads);
  workers.run(lanes.size(), [&](std::size_t i) {
    const GroupTensors tensors(sequence, lanes[i], {});
    PivotalPositions pivotal(study, model, lanes[i].layer);
    for_lane_rows(tensors, first, end, progress, [&](const RowBlock& rows) { pivotal.look(rows); });
    out[i] = pivotal.counts();
  });
  return out;
}

}  // namespace kvsim::sim
