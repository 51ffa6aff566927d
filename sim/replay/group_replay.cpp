#include "sim/replay/group_replay.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "policies/parts/rows/window_rows.hpp"
#include "sim/attention/importance_rule.hpp"
#include "sim/attention/prompt_pass.hpp"
#include "sim/attention/unit_future.hpp"
#include "sim/replay/lane_measures.hpp"
#include "sim/replay/replay_unit.hpp"
#include "traces/format/recorded_rows.hpp"

namespace kvsim::sim {
namespace {

/// Returns the prompt rows that the importance w is measured over; 0 if the trace lacks them.
std::size_t importance_rows(const trace::Sequence& sequence, const ImportanceRule& rule) {
  const std::size_t prompt = sequence.prompt_length();
  const std::size_t wanted = std::min(rule.rows, prompt);
  return trace::first_row(sequence) <= prompt - wanted ? wanted : 0;
}

bool streams(const Plan& plan) {
  return std::ranges::any_of(plan.eviction_groups, &EvictionGroup::streams);
}

/// Returns the first prompt row that is computed for the policies that rank the prompt.
std::size_t first_ranked_row(const trace::Sequence& sequence, const Request& request, const Plan& plan) {
  std::size_t rows = importance_rows(sequence, request.importance);
  for (const EvictionGroup& eviction_group : plan.eviction_groups)
    if (!eviction_group.streams) rows = std::max(rows, eviction_group.requirement.rows);
  return first_prompt_row(sequence, rows);
}

MeasureRules measure_rules(const trace::Sequence& sequence, const Request& request, const Plan& plan) {
  return {sequence.prompt_length(), sequence.model().group(), request.peak, plan.evidence, request.each_step};
}

class GroupReplay {
 public:
  GroupReplay(const trace::Sequence& sequence, const Request& request, const Plan& plan, LaneGroup group,
              Outcome& outcome, std::vector<LaneCurves>& curves, std::vector<std::vector<IdleLane>>& idle,
              Progress& progress)
      : sequence_(sequence),
        request_(request),
        plan_(plan),
        group_(group),
        outcome_(outcome),
        curves_(curves),
        idle_(idle),
        progress_(progress),
        prompt_(sequence.prompt_length()),
        importance_rows_(importance_rows(sequence, request.importance)),
        tensors_(sequence, group, plan.needs),
        represented_(plan, tensors_, request.seed, request.tables),
        selected_(plan, tensors_, request.seed, request.tables),
        rules_(measure_rules(sequence, request, plan)) {}

  void run() {
    make_units();
    rank_prompt();
    stream_prompt();
    begin_parts();
    begin_measures();
    const std::size_t block = decode_block(sequence_);
    for (std::size_t first = sequence_.first_measured(); first < sequence_.length(); first += block)
      decode(first, std::min<std::size_t>(block, sequence_.length() - first));
    for (LaneMeasures& measures : measures_) measures.end();
    note_unchanged();
    if (request_.decisions) record_decisions();
  }

 private:
  std::size_t lane_index(std::size_t lane) const {
    return std::size_t{group_.layer} * sequence_.model().n_kv_heads + group_.first_head + lane;
  }

  void make_units() {
    for (const EvictionGroup& eviction_group : plan_.eviction_groups)
      for (ReplayUnit& unit : replay_units(
               eviction_group, tensors_, request_.seed, request_.tables,
               [this](std::size_t lane, std::size_t n) -> const policy::Future& { return future(lane, n); }))
        units_.push_back(std::move(unit));
    for (const ReplayUnit& unit : units_) {
      represented_.add(unit);
      selected_.add(unit);
    }
  }

  const UnitFuture& future(std::size_t first_lane, std::size_t n_lanes) {
    auto& known = futures_[{first_lane, n_lanes}];
    if (!known)
      known = std::make_unique<UnitFuture>(tensors_, first_lane, n_lanes, sequence_.first_measured(),
                                           decode_block(sequence_));
    return *known;
  }

  /// Shows the prompt to all policies that rank it, in one pass, then starts every cache.
  void rank_prompt() {
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
      importance_.emplace_back(static_cast<int>(sequence_.model().group()), request_.importance.rows,
                               request_.importance.pooling);
    std::vector<Subscription> subscriptions;
    if (importance_rows_ > 0)
      for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
        subscriptions.push_back({&importance_[lane], lane, 1, {importance_rows_}});
    for (ReplayUnit& unit : units_)
      if (!unit.eviction_group().streams) subscriptions.push_back(unit.subscription());
    represented_.subscribe(subscriptions);
    selected_.subscribe(subscriptions);
    replay_prompt(tensors_, subscriptions, progress_);
    represented_.finish_pairs();
    selected_.read_leaders();
    for (ReplayUnit& unit : units_)
      for (const std::size_t cell : unit.eviction_group().cells)
        unit.start(cell, plan_.cells[cell].lane_budget[lane_index(unit.first_lane())], request_.decisions);
    if (plan_.bounds)
      for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
        curves_[lane_index(lane)].set_future({future(lane, 1).attention(), future(lane, 1).prompt()});
    futures_.clear();
    if (request_.scores) record_scores();
  }

  void record_scores() {
    for (const ReplayUnit& unit : units_) {
      if (unit.eviction_group().streams) continue;
      const policy::Eviction& eviction = unit.eviction();
      std::shared_ptr<const std::vector<double>> scores;
      if (!eviction.scores().empty())
        scores = std::make_shared<std::vector<double>>(eviction.scores().begin(), eviction.scores().end());
      for (const Cache& cache : unit.caches())
        for (std::size_t lane = unit.first_lane(); unit.covers(lane); ++lane)
          outcome_.cells[cache.cell].scores[lane_index(lane)] = {
              scores, eviction.protection(cache.budget, prompt_), tensors_.first_held()};
    }
  }

  /// Feeds the prompt token by token to the other policies, through the caches they manage.
  void stream_prompt() {
    std::vector<ReplayUnit*> streaming;
    bool need_rows = false;
    for (ReplayUnit& unit : units_) {
      if (!unit.eviction_group().streams) continue;
      streaming.push_back(&unit);
      need_rows = need_rows || unit.eviction_group().needs.decode_rows;
    }
    if (streaming.empty()) return;
    for (std::size_t first = 0, n; first < prompt_; first += n) {
      progress_.check();
      n = std::min(kPromptBlock, prompt_ - first);
      if (need_rows) rows_.compute(first, n);
      for (ReplayUnit* unit : streaming)
        for (Cache& cache : unit->caches()) {
          for (std::size_t position = first; position < first + n; ++position) {
            unit->admit(cache, position, 0);
            unit->attended(cache, position, rows_);
          }
          cache.residents.forget_ended();
        }
      progress_.advance(n * group_.n_lanes * sequence_.model().group());
    }
  }

  /// The codecs and selectors of cells that have any begin with what is kept of the prompt.
  void begin_parts() {
    for (ReplayUnit& unit : units_)
      for (Cache& cache : unit.caches()) {
        represented_.store(unit, cache, cache.cell);
        selected_.begin(unit, cache, cache.cell);
      }
  }

  std::vector<double> importance(std::size_t lane) {
    return importance_rows_ > 0 ? importance_[lane].values() : std::vector<double>{};
  }

  /// Returns the cells of one lane, and where their numbers go.
  MeasuredCells measured(std::size_t lane) {
    MeasuredCells out;
    for (ReplayUnit& unit : units_) {
      if (!unit.covers(lane)) continue;
      for (Cache& cache : unit.caches()) {
        out.push_back(
            {&cache, &outcome_.cells[cache.cell].lanes[lane_index(lane)], lane - unit.first_lane()});
        // The budget of a lane that never evicts is the length of the sequence.
        const std::size_t given = most_given(plan_.cells[cache.cell], prompt_);
        out.back().out->appends = !cache.decoder || cache.budget > given;
      }
    }
    if (request_.each_step)
      for (const MeasuredCell& measured : out) measured.out->each_step.reserve(sequence_.measured_length());
    return out;
  }

  void begin_measures() {
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane) {
      const MeasuredCells cells = measured(lane);
      std::vector<double> w = importance(lane);
      measure_kept(plan_.segments, w, tensors_.first_held(), cells);
      for (const MeasuredCell& measured : cells)
        idle_[measured.cache->cell][lane_index(lane)].kept_ends =
            kept_ends(measured.cache->residents.slots(), tensors_.first_held(), prompt_);
      curves_[lane_index(lane)].importance = std::move(w);
      measures_.emplace_back(rules_, tensors_, lane, cells);
      if (lane > 0 || !sequence_.source().has_output_weights()) continue;
      std::vector<LayerOutcome*> layers;
      for (const MeasuredCell& measured : cells)
        layers.push_back(&outcome_.cells[measured.cache->cell].layers[group_.layer]);
      projected_.emplace(tensors_, std::move(layers));
    }
  }

  /// Measures positions first .. first + n - 1.
  void decode(std::size_t first, std::size_t n) {
    progress_.check();
    rows_.compute(first, n);
    for (ReplayUnit& unit : units_)
      for (Cache& cache : unit.caches()) cache.residents.begin_block();
    const auto step_of = [&](std::size_t position) {
      return static_cast<std::uint32_t>(position + 1 - prompt_);
    };
    for (std::size_t s = 0; s < n; ++s) {
      const std::size_t position = first + s;
      for (ReplayUnit& unit : units_)
        for (Cache& cache : unit.caches()) {
          if (position < prompt_)
            unit.ask_again(cache, position);
          else
            unit.admit(cache, position, step_of(position));
          selected_.select(unit, cache, position, rows_);
        }
      for (std::size_t lane = 0; lane < group_.n_lanes; ++lane) measures_[lane].attention(rows_, lane, s);
      if (position < prompt_) continue;
      for (ReplayUnit& unit : units_)
        for (Cache& cache : unit.caches()) {
          if (cache.decoder) unit.attended(cache, position, rows_);
          if (!cache.stored) continue;
          cache.stored->settle(cache.own_slot, cache.stored->slot_attention().attention);
          represented_.pair(unit, cache, position);
        }
    }
    if (projected_) projected_->begin(n);
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
      measures_[lane].outputs(rows_, lane, step_of(first), tensors_.values(lane),
                              projected_ ? &*projected_ : nullptr);
    if (projected_) projected_->end();
    progress_.advance(n * group_.n_lanes * sequence_.model().group());
  }

  void note_unchanged() {
    for (ReplayUnit& unit : units_)
      for (const Cache& cache : unit.caches())
        for (std::size_t lane = 0; cache.stored && lane < unit.n_lanes(); ++lane) {
          const std::size_t at = unit.first_lane() + lane;
          const auto row = [](const MatrixView& rows) {
            return [rows](policy::Position position) { return rows.row(static_cast<std::size_t>(position)); };
          };
          idle_[cache.cell][lane_index(at)].unchanged =
              is_unchanged(cache.stored->rows(), lane, row(tensors_.keys(at)), row(tensors_.values(at)));
        }
  }

  void record_decisions() {
    for (ReplayUnit& unit : units_)
      for (const Cache& cache : unit.caches()) {
        const std::vector<ResidentInterval> history =
            cache.residents.history(static_cast<std::uint32_t>(sequence_.decode_length() + 1));
        for (std::size_t lane = unit.first_lane(); lane < unit.first_lane() + unit.n_lanes(); ++lane)
          outcome_.cells[cache.cell].resident_intervals[lane_index(lane)] = history;
      }
  }

  const trace::Sequence& sequence_;
  const Request& request_;
  const Plan& plan_;
  const LaneGroup group_;
  Outcome& outcome_;
  std::vector<LaneCurves>& curves_;
  std::vector<std::vector<IdleLane>>& idle_;
  Progress& progress_;
  const std::size_t prompt_, importance_rows_;
  const GroupTensors tensors_;
  std::vector<ReplayUnit> units_;
  RepresentedUnits represented_;
  SelectedUnits selected_;

  std::vector<policy::WindowImportance> importance_;  ///< per lane
  std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<UnitFuture>> futures_;
  RowBlock rows_{tensors_};  ///< of the present block of steps
  const MeasureRules rules_;
  std::vector<LaneMeasures> measures_;         ///< per lane
  std::optional<ProjectedOutputs> projected_;  ///< of a layer's lanes, where the trace has output weights
};

/// Floats that an oracle takes per entry of its rows: one for the row, two for a double derived from it, and
/// one for an order of the tokens.
constexpr std::uint64_t kFutureFloats = 4;

}  // namespace

void replay_lane_group(const trace::Sequence& sequence, const Request& request, const Plan& plan,
                       LaneGroup group, Outcome& outcome, std::vector<LaneCurves>& curves,
                       std::vector<std::vector<IdleLane>>& idle, Progress& progress) {
  progress.check();
  GroupReplay(sequence, request, plan, group, outcome, curves, idle, progress).run();
}

std::uint64_t group_work(const trace::Sequence& sequence, const Request& request, const Plan& plan,
                         LaneGroup group) {
  const std::uint64_t prompt_rows = sequence.prompt_length() - first_ranked_row(sequence, request, plan);
  const std::uint64_t rows =
      prompt_rows + (streams(plan) ? sequence.prompt_length() : 0) + sequence.measured_length();
  return std::uint64_t{group.n_lanes} * sequence.model().group() * rows;
}

void will_replay(const trace::Sequence& sequence, const Request& request, const Plan& plan, LaneGroup group) {
  const bool all = streams(plan) || plan.needs.queries;
  will_read(sequence, group, all ? 0 : first_ranked_row(sequence, request, plan));
}

std::uint64_t group_bytes(const trace::Sequence& sequence, const Plan& plan, std::uint32_t n_lanes) {
  const trace::Model& model = sequence.model();
  const std::uint64_t length = sequence.length(), heads = std::uint64_t{n_lanes} * model.group();
  std::uint64_t tensors =
      n_lanes * length * (model.head_dim + model.v_head_dim) +
      n_lanes * KeyPanels::bytes(length, model.head_dim, sequence.source().header().elem == Elem::bf16) /
          sizeof(float);
  if (plan.needs.queries) tensors += heads * length * model.head_dim;
  if (plan.needs.output_weights) tensors += heads * model.v_head_dim * model.hidden_size;
  std::uint64_t prompt_rows = kPromptBlock * sequence.prompt_length(), futures = 0;
  for (const EvictionGroup& eviction_group : plan.eviction_groups) {
    if (eviction_group.streams && eviction_group.needs.decode_rows)
      prompt_rows = kPromptBlock * length * heads;
    if (eviction_group.eviction->spec->is_oracle())
      futures +=
          length * sequence.measured_length() * (eviction_group.layer_unit ? 1 : n_lanes) * kFutureFloats;
  }
  tensors += QueryReader::bytes(sequence, heads) / sizeof(float);
  // Layers that are stored together are both read; a layer may have a partner on either side.
  for (const PartGroup& group : plan.representation_groups)
    if (group.crosses) tensors += 2 * n_lanes * length * (model.head_dim + model.v_head_dim);
  // A layer that chooses for others is read with its queries.
  for (const PartGroup& group : plan.selection_groups)
    if (group.crosses)
      tensors += n_lanes * length * (model.head_dim * (1 + model.group()) + model.v_head_dim);
  for (const Plan::CellPlan& cell : plan.cells) {
    if (cell.representation != Plan::kNone)
      tensors += n_lanes * length * (model.head_dim + model.v_head_dim + 2);
    // An index is at most a second copy of what is stored, and the columns that every head reads.
    if (cell.selection != Plan::kNone)
      tensors += n_lanes * length * (model.head_dim + model.v_head_dim + 2 * (model.group() + 2));
  }
  if (plan.bounds) futures += length * sequence.measured_length() * n_lanes * kFutureFloats;
  // Decode rows of all heads; one lane's rows twice more, by position and masked to the resident positions,
  // the latter with values.
  const std::uint64_t block = decode_block(sequence);
  std::uint64_t decode_rows =
      block * length * (heads + 2 * std::uint64_t{model.group()}) + length * (model.v_head_dim + 1);
  if (sequence.source().has_output_weights())
    decode_rows += (plan.cells.size() + 2) * block * model.hidden_size;
  return (tensors + std::max(prompt_rows + futures, decode_rows)) * sizeof(float);
}

}  // namespace kvsim::sim
