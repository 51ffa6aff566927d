#include "sim/inspect/persistence.hpp"

#include <algorithm>
#include <string>

#include "sim/attention/lane_rows.hpp"
#include "sim/attention/mean_attention.hpp"
#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::sim {
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
