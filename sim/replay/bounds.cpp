#include "sim/replay/bounds.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "policies/parts/oracles/optimal_retention.hpp"

namespace kvsim::sim {
namespace {

using policy::Holding;

/// Returns R_avg of the best n positions of all lanes together, n = 0, 1, ...; empty where R_avg is
/// undefined.
std::vector<double> best_retention(std::vector<LaneCurves>& lanes, const Outcome& outcome) {
  std::vector<double> shares;
  for (std::size_t first = 0; first < lanes.size(); first += outcome.n_kv_heads) {
    const auto layer = std::span(lanes).subspan(first, outcome.n_kv_heads);
    double whole = 0;
    for (const LaneCurves& lane : layer)
      whole += std::accumulate(lane.importance.begin(), lane.importance.end(), 0.0);
    if (whole == 0) return {};
    for (LaneCurves& lane : layer) {
      for (const double w : lane.importance) shares.push_back(w / whole / outcome.n_layers);
      lane.importance = {};
    }
  }
  std::sort(shares.begin(), shares.end(), std::greater<>());
  std::vector<double> out(shares.size() + 1, 0.0);
  std::partial_sum(shares.begin(), shares.end(), out.begin() + 1);
  out.back() = 1;  // all positions: exactly 1
  return out;
}

std::optional<Holding> holding_of(const policy::Part& eviction, const CellOutcome& cell) {
  if (eviction.spec->own_budget()) return {};
  // One lane that appends generated tokens beside its budget is enough: the bound then lets every lane do so.
  const bool appends =
      std::any_of(cell.lanes.begin(), cell.lanes.end(), [](const LaneOutcome& lane) { return lane.appends; });
  return appends ? Holding::append_only : eviction.overshoot() > 0 ? Holding::overshoot : Holding::managed;
}

/// Computes each bound on losses once: cells with the same holding, total and most tokens per lane share it.
class LossBounds {
 public:
  explicit LossBounds(const std::vector<LaneCurves>& lanes) {
    for (const LaneCurves& lane : lanes) {
      managed_.push_back(lane.managed);
      append_only_.push_back(lane.append_only);
    }
  }

  double at(Holding holding, std::size_t total, std::size_t most) {
    const bool appends = holding == Holding::append_only;
    const auto [entry, fresh] = known_.try_emplace({appends, total, most}, 0.0);
    if (fresh) entry->second = policy::least_loss(appends ? append_only_ : managed_, total, most);
    return entry->second;
  }

 private:
  std::vector<std::vector<double>> managed_, append_only_;
  std::map<std::tuple<bool, std::size_t, std::size_t>, double> known_;
};

}  // namespace

void LaneCurves::set_future(const policy::MassAhead& future) {
  managed = policy::OptimalRetention(future).losses();
  append_only = policy::append_losses(future);
}

void add_bounds(const Request& request, std::vector<LaneCurves> lanes, Outcome& outcome) {
  const std::vector<double> retention = best_retention(lanes, outcome);
  const bool losses = !lanes.empty() && !lanes.front().managed.empty();
  LossBounds bounds(lanes);
  lanes.clear();
  for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
    CellOutcome& cell = outcome.cells[i];
    if (!cell.skipped.empty()) continue;
    const policy::Part& eviction = request.cells[i].composition.eviction;
    cell.holding = holding_of(eviction, cell);
    std::size_t kept = 0;
    for (const LaneOutcome& lane : cell.lanes) kept += lane.kept_tokens;
    if (!retention.empty()) cell.r_bound = retention[std::min(kept, retention.size() - 1)];
    const std::uint64_t steps = cell.lanes.front().steps;
    if (!losses || !cell.holding || steps == 0 || cell.lanes.front().stored) continue;
    // A lane gets at most the prompt, unless the mean budget is more.
    const std::size_t given = cell.most_given;
    const std::size_t most =
        *cell.holding == Holding::append_only ? outcome.prompt : given + eviction.overshoot();
    std::size_t total = 0;
    for (const LaneOutcome& lane : cell.lanes)
      total += std::min<std::size_t>(std::min<std::size_t>(lane.budget_tokens, given) + eviction.overshoot(),
                                     most);
    cell.attention_loss_bound =
        bounds.at(*cell.holding, total, most) / static_cast<double>(cell.lanes.size() * steps);
  }
}

std::uint64_t bounds_bytes(std::uint64_t lanes, std::uint64_t prompt, std::uint64_t steps, bool losses) {
  const std::uint64_t shares = 3 * prompt, curves = losses ? 5 * (2 * prompt + steps) : 0;
  return lanes * std::max(shares, curves + prompt) * sizeof(double);
}

}  // namespace kvsim::sim
