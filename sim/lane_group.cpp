#include "sim/lane_group.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "policies/parts/window_importance.hpp"
#include "sim/lane_measures.hpp"
#include "sim/prompt_pass.hpp"
#include "sim/unit_future.hpp"

namespace kvsim::sim {
namespace {

/// Decode steps per block at most, and the floats their rows may take.
constexpr std::size_t kDecodeBlock = 32;
constexpr std::size_t kDecodeFloats = std::size_t{1} << 23;

/// Depends on the trace alone: the rows a cell is measured against must not depend on which other cells are
/// replayed with it.
std::size_t decode_block(const trace::Sequence& sequence) {
  const std::size_t row_floats = sequence.model().n_q_heads * sequence.length();
  return std::clamp<std::size_t>(kDecodeFloats / row_floats, 1, kDecodeBlock);
}

/// Rows of the metric's importance w, if the trace has them.
std::size_t importance_rows(const trace::Sequence& sequence) {
  const std::size_t prompt = sequence.prompt_length();
  const std::size_t wanted = std::min(policy::WindowImportance(1).prompt_rows(), prompt);
  return sequence.first_query() <= prompt - wanted ? wanted : 0;
}

class GroupReplay {
 public:
  GroupReplay(const trace::Sequence& sequence, const Request& request, const Plan& plan, LaneGroup group,
              Outcome& outcome, Progress& progress)
      : sequence_(sequence),
        request_(request),
        plan_(plan),
        group_(group),
        outcome_(outcome),
        progress_(progress),
        prompt_(sequence.prompt_length()),
        decode_(sequence.decode_length()),
        tensors_(sequence, group, plan.needs),
        measures_(request.each_step) {}

  void run() {
    make_units();
    rank_prompt();
    stream_prompt();
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane) {
      measured_.push_back(measured(lane));
      measure_importance(importance(lane), measured_[lane]);
    }
    const std::size_t block = decode_block(sequence_);
    for (std::size_t first = 0; first < decode_; first += block)
      decode(first, std::min(block, decode_ - first));
    if (request_.decisions) record_decisions();
  }

 private:
  std::size_t lane_index(std::size_t lane) const {
    return std::size_t{group_.layer} * sequence_.model().n_kv_heads + group_.first_head + lane;
  }

  void make_units() {
    for (const Family& family : plan_.families) {
      const std::size_t n_lanes = family.layer_unit ? group_.n_lanes : 1;
      for (std::size_t lane = 0; lane < group_.n_lanes; lane += n_lanes)
        units_.emplace_back(family, tensors_, lane, n_lanes, make_eviction(family, lane, n_lanes));
    }
  }

  std::unique_ptr<policy::Eviction> make_eviction(const Family& family, std::size_t lane,
                                                  std::size_t n_lanes) {
    const auto first_head = group_.first_head + static_cast<std::uint32_t>(lane);
    const policy::Unit unit = unit_of(sequence_.model(), group_.layer, first_head,
                                      static_cast<std::uint32_t>(n_lanes), request_.seed, request_.tables);
    const policy::Part& part = *family.eviction;
    if (!part.spec->make_oracle) return part.make_eviction(unit);
    auto oracle = part.spec->make_oracle(part.params, unit);
    oracle->foresee(future(lane, n_lanes));
    return oracle;
  }

  const UnitFuture& future(std::size_t first_lane, std::size_t n_lanes) {
    auto& known = futures_[{first_lane, n_lanes}];
    if (!known)
      known = std::make_unique<UnitFuture>(tensors_, first_lane, n_lanes, prompt_, decode_block(sequence_));
    return *known;
  }

  /// Everybody who ranks the prompt at once sees it; then all start.
  void rank_prompt() {
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
      importance_.emplace_back(static_cast<int>(sequence_.model().group()));
    std::vector<Watcher> watchers;
    if (const std::size_t rows = importance_rows(sequence_))
      for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
        watchers.push_back({&importance_[lane], lane, 1, {rows}});
    for (CachedUnit& unit : units_)
      if (!unit.family().viewing.empty())
        watchers.push_back({&unit.eviction(), unit.first_lane(), unit.n_lanes(), unit.family().viewing});
    show_prompt(tensors_, watchers, progress_);
    for (CachedUnit& unit : units_) {
      if (!unit.family().streams)
        unit.eviction().finish_prompt(GroupTensors::PromptView(tensors_, unit.first_lane()));
      for (const std::size_t cell : unit.family().cells)
        unit.start(cell, plan_.cells[cell].lane_budget[lane_index(unit.first_lane())], request_.decisions);
    }
    futures_.clear();
  }

  /// The others take the prompt token by token, through the caches they manage.
  void stream_prompt() {
    std::vector<CachedUnit*> streaming;
    bool need_rows = false;
    for (CachedUnit& unit : units_) {
      if (!unit.family().streams) continue;
      streaming.push_back(&unit);
      need_rows = need_rows || unit.family().needs.decode_rows;
    }
    if (streaming.empty()) return;
    for (std::size_t first = 0, n; first < prompt_; first += n) {
      progress_.check();
      n = std::min(kPromptBlock, prompt_ - first);
      if (need_rows) rows_.compute(tensors_, first, n);
      for (CachedUnit* unit : streaming)
        for (UnitCell& cell : unit->cells()) {
          for (std::size_t position = first; position < first + n; ++position) {
            unit->admit(cell, position, 0);
            unit->show(cell, position, rows_);
          }
          cell.residents.begin_history();
        }
      progress_.advance(n * group_.n_lanes * sequence_.model().group());
    }
  }

  std::vector<double> importance(std::size_t lane) {
    if (importance_rows(sequence_) == 0) return {};
    importance_[lane].finish_prompt(GroupTensors::PromptView(tensors_, lane));
    return importance_[lane].values();
  }

  /// The cells of one lane, and where their numbers go.
  std::vector<MeasuredFamily> measured(std::size_t lane) {
    std::vector<MeasuredFamily> out;
    for (CachedUnit& unit : units_) {
      if (!unit.covers(lane)) continue;
      MeasuredFamily& family = out.emplace_back();
      for (UnitCell& cell : unit.cells())
        family.push_back({&cell, &outcome_.cells[cell.cell].lanes[lane_index(lane)]});
      if (request_.each_step)
        for (const MeasuredCell& measured : family) measured.out->each_step.reserve(decode_);
    }
    return out;
  }

  /// Decode steps first .. first + n - 1, counted from 0.
  void decode(std::size_t first, std::size_t n) {
    progress_.check();
    rows_.compute(tensors_, prompt_ + first, n);
    for (CachedUnit& unit : units_)
      for (UnitCell& cell : unit.cells()) {
        cell.residents.begin_block();
        cell.held.assign(n, 0);
      }
    for (std::size_t s = 0; s < n; ++s) {
      const std::size_t position = prompt_ + first + s;
      for (CachedUnit& unit : units_)
        for (UnitCell& cell : unit.cells()) {
          unit.admit(cell, position, static_cast<std::uint32_t>(first + s + 1));
          cell.held[s] = cell.residents.slots().size();
        }
      for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
        measures_.attention(rows_, lane, s, measured_[lane]);
      for (CachedUnit& unit : units_)
        for (UnitCell& cell : unit.cells())
          if (cell.decoder) unit.show(cell, position, rows_);
    }
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
      measures_.outputs(rows_, lane, static_cast<std::uint32_t>(first + 1), tensors_.values(lane),
                        measured_[lane]);
    progress_.advance(n * group_.n_lanes * sequence_.model().group());
  }

  void record_decisions() {
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
      for (const MeasuredFamily& family : measured_[lane])
        for (const MeasuredCell& measured : family)
          outcome_.cells[measured.cell->cell].residency[lane_index(lane)] =
              measured.cell->residents.history(static_cast<std::uint32_t>(decode_ + 1));
  }

  const trace::Sequence& sequence_;
  const Request& request_;
  const Plan& plan_;
  const LaneGroup group_;
  Outcome& outcome_;
  Progress& progress_;
  const std::size_t prompt_, decode_;
  const GroupTensors tensors_;
  std::vector<CachedUnit> units_;
  std::vector<std::vector<MeasuredFamily>> measured_;  ///< per lane

  std::vector<policy::WindowImportance> importance_;  ///< per lane
  std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<UnitFuture>> futures_;
  RowBlock rows_;  ///< of the present block of steps
  LaneMeasures measures_;
};

/// An oracle's rows, and what it derives from them in double.
constexpr std::uint64_t kFutureFloats = 3;

}  // namespace

void replay_lane_group(const trace::Sequence& sequence, const Request& request, const Plan& plan,
                       LaneGroup group, Outcome& outcome, Progress& progress) {
  progress.check();
  GroupReplay(sequence, request, plan, group, outcome, progress).run();
}

std::uint64_t group_work(const trace::Sequence& sequence, const Plan& plan, LaneGroup group) {
  std::size_t ranked = importance_rows(sequence), streamed = 0;
  for (const Family& family : plan.families) {
    if (family.streams)
      streamed = sequence.prompt_length();
    else
      ranked = std::max(ranked, family.viewing.rows);
  }
  const std::uint64_t rows = sequence.length() - first_prompt_row(sequence, ranked) + streamed;
  return std::uint64_t{group.n_lanes} * sequence.model().group() * rows;
}

std::uint64_t group_bytes(const trace::Sequence& sequence, const Plan& plan, std::uint32_t n_lanes) {
  const trace::Model& model = sequence.model();
  const std::uint64_t length = sequence.length(), heads = std::uint64_t{n_lanes} * model.group();
  std::uint64_t tensors = n_lanes * length * (model.head_dim + model.v_head_dim);
  if (plan.needs.queries) tensors += heads * length * model.head_dim;
  if (plan.needs.output_weights) tensors += heads * model.v_head_dim * model.hidden_size;
  std::uint64_t prompt_rows = kPromptBlock * sequence.prompt_length(), futures = 0;
  for (const Family& family : plan.families) {
    if (family.streams && family.needs.decode_rows) prompt_rows = kPromptBlock * length * heads;
    if (family.eviction->spec->make_oracle)
      futures += length * sequence.decode_length() * (family.layer_unit ? 1 : n_lanes) * kFutureFloats;
  }
  // Decode rows of all heads, and a copy of one lane's.
  const std::uint64_t decode_rows = decode_block(sequence) * length * (heads + model.group());
  return (tensors + std::max({prompt_rows + futures, decode_rows})) * sizeof(float);
}

}  // namespace kvsim::sim
