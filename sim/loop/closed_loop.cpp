#include "sim/loop/closed_loop.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>

#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"
#include "sim/loop/chunked_prompt.hpp"
#include "sim/loop/key_shifts.hpp"
#include "sim/loop/loop_plan.hpp"
#include "sim/loop/loop_unit.hpp"
#include "sim/loop/slot_rows.hpp"
#include "sim/loop/stream.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/idle_parts.hpp"
#include "sim/replay/represented_units.hpp"
#include "sim/replay/selected_units.hpp"
#include "traces/model/sampling.hpp"

namespace kvsim::sim {
namespace {

using model::cpu::StepTensors;
using policy::Position;

std::span<const std::int32_t> fed_at_first(const trace::Sequence& sequence,
                                           std::span<const std::int32_t> tokens) {
  return tokens.subspan(static_cast<std::size_t>(sequence.first_measured()));
}

/// Most tokens that any stream is fed after the cut.
std::size_t most_fed(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
                     const LoopRequest& request) {
  std::size_t most = 0;
  for (const LoopMode mode : request.modes)
    for (const Script& script : scripts_of(request, mode, fed_at_first(sequence, tokens)))
      most = std::max(most, most_tokens(request, mode, script));
  return most;
}

class ClosedLoop {
 public:
  ClosedLoop(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
             const model::ModelConfig& config, const model::Weights& weights, const LoopRequest& asked,
             Progress& progress)
      : sequence_(sequence),
        tokens_(tokens),
        config_(config),
        asked_(asked),
        progress_(progress),
        workers_(asked.threads),
        loop_plan_(plan_loop(sequence, asked)),
        prompt_(sequence.prompt_length()),
        first_fed_(sequence.first_measured()),
        length_(first_fed_ + most_fed(sequence, tokens, asked)),
        batch_(config, weights, asked.elem, length_, workers_),
        outcomes_(asked.turns.size()) {
    if (asked.positions == LoopPositions::text) return;
    for (std::uint32_t layer = 0; layer < config.n_layers; ++layer) {
      // Layers that rotate alike share a table.
      const std::vector<std::uint32_t>& rotation = sequence.model().layer_rotation;
      const std::size_t number = rotation.empty() ? 0 : rotation[layer];
      rotations_.resize(std::max(rotations_.size(), number + 1));
      if (!rotations_[number]) rotations_[number].emplace(sequence.model().rotary(layer), length_);
    }
  }

  std::vector<LoopOutcome> run() {
    choose_cells();
    plan_ = outline(sequence_, request_);
    AllocationPass allocation_pass(sequence_, request_, plan_);
    progress_.total.store(allocation_pass.work() + prompt_work() + own_prompt_work() + answer_work(),
                          std::memory_order_relaxed);
    allocation_pass.run(workers_, progress_);
    split_budgets(sequence_, request_, allocation_pass, plan_, length_);
    run_once(request_, prompt_, plan_);
    make_streams();
    begin_caches();
    if (std::any_of(streams_.begin(), streams_.end(), processes_prompt)) process_prompts();
    end_prompt();
    if (!asks_again()) note_stored();
    for (std::size_t position = first_fed_; step(position); ++position) progress_.advance(step_work());
    return outcomes();
  }

 private:
  struct Layer {
    std::unique_ptr<GroupTensors> tensors;
    std::vector<ReplayUnit> shared;  // by policies that begin with the prompt of the sequence
    std::unique_ptr<RepresentedUnits> represented;
    std::unique_ptr<SelectedUnits> selected;
    std::vector<LoopUnit> units;  // all of them
    std::vector<float> queries;   // [rows][n_heads][dim] of the present step, where layers choose for others
  };
  /// The prompt of one stream as it comes in chunks.
  struct ChunkedStream {
    std::size_t stream = 0;
    std::vector<ChunkedUnit> units;  // by layer, then lane
    std::size_t per_layer = 1;
  };

  static bool processes_prompt(const Stream& stream) { return stream.prefill != Prefill::dense; }

  std::uint64_t step_work() const { return std::uint64_t{config_.n_layers} * config_.n_heads; }
  std::uint64_t answer_work() const { return (length_ - first_fed_ - 1) * step_work(); }
  std::uint64_t prompt_work() const {
    std::size_t rows = 0;
    for (const EvictionGroup& group : plan_.eviction_groups) rows = std::max(rows, group.requirement.rows);
    return step_work() * (prompt_ - first_prompt_row(sequence_, rows));
  }
  std::uint64_t own_prompt_work() const {
    return std::any_of(loop_plan_.cells.begin(), loop_plan_.cells.end(),
                       [](const auto& cell) { return cell.prefill != Prefill::dense; })
               ? prompt_ * step_work()
               : 0;
  }
  /// Whether the prompt's last token is fed once more.
  bool asks_again() const { return first_fed_ < prompt_; }
  double lanes() const { return static_cast<double>(config_.n_layers) * config_.n_kv_heads; }

  // Before the answers: cells, streams, caches.

  void choose_cells() {
    request_.seed = prompt_seed(sequence_, asked_.seed);
    request_.threads = asked_.threads;
    request_.tables = asked_.tables;
    first_.cells.resize(asked_.cells.size());
    for (std::size_t i = 0; i < asked_.cells.size(); ++i) {
      first_.cells[i].skipped = loop_plan_.cells[i].refused;
      first_.cells[i].prefill = loop_plan_.cells[i].prefill;
      first_.cells[i].profiled = loop_plan_.cells[i].profiled;
      if (!first_.cells[i].skipped.empty()) continue;
      request_.cells.push_back(asked_.cells[i]);
      cell_of_request_.push_back(i);
    }
    if (request_.cells.empty())
      usage_error(first_.cells.empty() ? "no cell to evaluate" : first_.cells[0].skipped);
  }

  Prefill prefill_of(std::size_t cell) const { return loop_plan_.cells[cell_of_request_[cell]].prefill; }
  LoopCell& outcome_of(std::size_t cell) { return first_.cells[cell_of_request_[cell]]; }

  void make_streams() {
    bool dense = false, own = false;
    for (std::size_t cell = 0; cell < request_.cells.size(); ++cell) {
      outcome_of(cell).skipped = plan_.cells[cell].skipped;
      outcome_of(cell).budget_tokens = plan_.cells[cell].budget_tokens;
      if (!plan_.cells[cell].skipped.empty()) continue;
      (prefill_of(cell) == Prefill::dense ? dense : own) = true;
    }
    if (!own) dense = true;  // there is a reference even if no cell can run
    for (const LoopMode mode : asked_.modes)
      for (const Script& script : scripts_of(asked_, mode, fed_at_first(sequence_, tokens_))) {
        if (dense) add_streams(mode, script, Prefill::dense);
        if (own) add_streams(mode, script, Prefill::stream);
      }
    first_reference_of_own_ = dense ? asked_.modes.size() : 0;
  }

  /// The reference of a script, and its cells.
  void add_streams(LoopMode mode, const Script& script, Prefill prefill) {
    const std::size_t reference = streams_.size();
    const auto add = [&](bool is_reference, std::size_t cell, Prefill of_cell) {
      Stream& stream = streams_.emplace_back();
      stream.mode = mode;
      stream.prefill = of_cell;
      stream.is_reference = is_reference;
      stream.cell = cell;
      stream.reference = reference;
      stream.leader = leader_of(stream);
      stream.script = script;
      stream.text = script.front().fed;
      stream.turns.resize(script.size());
      stream.first_own = of_cell == Prefill::dense ? first_fed_ : 0;
      const std::size_t rows = length_ - stream.first_own;
      for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer) {
        OwnRows& own = stream.own.emplace_back();
        own.keys = TokenRows(config_.n_kv_heads, rows, config_.head_dim);
        own.values = TokenRows(config_.n_kv_heads, rows, config_.head_dim);
        if (of_cell == Prefill::chunked) own.queries = TokenRows(config_.n_heads, prompt_, config_.head_dim);
      }
    };
    add(true, 0, prefill);
    for (std::size_t cell = 0; cell < request_.cells.size(); ++cell)
      if (plan_.cells[cell].skipped.empty() && plan_.cells[cell].same_as == Plan::kNone &&
          (prefill == Prefill::dense) == (prefill_of(cell) == Prefill::dense))
        add(false, cell, prefill_of(cell));
  }

  /// The first of the streams that process the prompt as this one, the latest, does.
  std::size_t leader_of(const Stream& stream) const {
    const auto first = std::find_if(streams_.begin(), streams_.end(), [&](const Stream& other) {
      return other.prefill == stream.prefill && other.is_reference == stream.is_reference &&
             other.cell == stream.cell;
    });
    return static_cast<std::size_t>(first - streams_.begin());
  }

  template <class Visit>
  void for_each_stream_of(const EvictionGroup& eviction_group, Visit visit) const {
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      const Stream& s = streams_[stream];
      const std::vector<std::size_t>& cells = eviction_group.cells;
      if (!s.is_reference && std::find(cells.begin(), cells.end(), s.cell) != cells.end())
        visit(stream, s.cell);
    }
  }

  /// Every layer's policies observe the prompt, and every stream's caches begin, but for those that take the
  /// prompt in chunks.
  void begin_caches() {
    layers_.resize(config_.n_layers);
    workers_.run(config_.n_layers, [&](std::size_t index) {
      Layer& layer = layers_[index];
      layer.tensors = std::make_unique<GroupTensors>(
          sequence_, LaneGroup{static_cast<std::uint32_t>(index), 0, config_.n_kv_heads}, plan_.needs);
      for (const EvictionGroup& eviction_group : plan_.eviction_groups) {
        if (prefill_of(eviction_group.cells.front()) == Prefill::chunked) continue;
        for (ReplayUnit& unit :
             replay_units(eviction_group, *layer.tensors, request_.seed, request_.tables, {}, length_))
          layer.shared.push_back(std::move(unit));
      }
      layer.represented =
          std::make_unique<RepresentedUnits>(plan_, *layer.tensors, request_.seed, request_.tables);
      layer.selected = std::make_unique<SelectedUnits>(plan_, *layer.tensors, request_.seed, request_.tables);
      std::vector<Subscription> subscriptions;
      for (ReplayUnit& unit : layer.shared) {
        layer.represented->add(unit);
        layer.selected->add(unit);
        if (!unit.eviction_group().streams) subscriptions.push_back(unit.subscription());
      }
      layer.represented->subscribe(subscriptions);
      layer.selected->subscribe(subscriptions);
      replay_prompt(*layer.tensors, subscriptions, progress_);
      layer.represented->finish_pairs();
      layer.selected->read_leaders();
      for (ReplayUnit& unit : layer.shared) {
        for_each_stream_of(unit.eviction_group(), [&](std::size_t stream, std::size_t cell) {
          const std::size_t lane = index * config_.n_kv_heads + unit.first_lane();
          unit.start(stream, plan_.cells[cell].lane_budget[lane], asked_.decisions);
          if (asks_again()) return;  // begin_parts() does it then
          layer.represented->store(unit, unit.caches().back(), cell);
          layer.selected->begin(unit, unit.caches().back(), cell);
        });
        layer.units.push_back({&unit, unit.first_lane(), unit.n_lanes(), {}, {}});
      }
    });
  }

  // Prompts that cells process themselves.

  void process_prompts() {
    begin_chunks();
    in_prompt_ = true;
    again_ = false;
    // A layer's caches depend on that layer's tokens alone, so that a block of tokens goes through the linear
    // layers at once and through each cache one by one.
    for (std::size_t first = 0; first < prompt_; first += block_) {
      progress_.check();
      position_ = first;
      block_ = std::min(kPromptBlock, prompt_ - first);
      if (asked_.prefill_tokens > 0)
        block_ = std::min<std::size_t>(block_, asked_.prefill_tokens - first % asked_.prefill_tokens);
      begin_step();
      for (std::size_t stream = 0; stream < streams_.size(); ++stream)
        if (processes_prompt(streams_[stream]) && streams_[stream].leader == stream)
          add_to_step(stream, tokens_.subspan(first, block_));
      for (ChunkedStream& chunked : chunked_)
        for (ChunkedUnit& unit : chunked.units)
          for (std::size_t position = first; position < first + block_; ++position)
            unit.residents.push_back(static_cast<Position>(position));
      note_chunk_peaks();
      batch_.forward(rows_, [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
        attend(layer, tensors, attended);
      });
      forget_ended();
      const std::size_t end = first + block_;
      if (asked_.prefill_tokens > 0 && (end == prompt_ || end % asked_.prefill_tokens == 0))
        cut_chunks(end, end == prompt_);
      progress_.advance(block_ * step_work());
    }
    in_prompt_ = false;
    block_ = 1;
    for (Stream& stream : streams_)
      if (processes_prompt(stream) && &stream != &streams_[stream.leader])
        stream.own = streams_[stream.leader].own;
  }

  void note_chunk_peaks() {
    for (const ChunkedStream& chunked : chunked_) {
      std::vector<std::size_t>& peaks = outcome_of(streams_[chunked.stream].cell).chunk_peaks;
      peaks.resize(std::size_t{config_.n_layers} * config_.n_kv_heads);
      for (const ChunkedUnit& unit : chunked.units)
        for (std::size_t lane = 0; lane < unit.n_lanes; ++lane) {
          std::size_t& peak = peaks[unit.layer * config_.n_kv_heads + unit.first_lane + lane];
          peak = std::max(peak, unit.residents.size());
        }
    }
  }

  void forget_ended() {
    for (Layer& layer : layers_)
      for (LoopUnit& unit : layer.units)
        for (Cache& cache : unit.caches()) cache.residents.forget_ended();
  }

  void begin_chunks() {
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      const Stream& s = streams_[stream];
      if (s.prefill != Prefill::chunked || s.leader != stream) continue;
      const bool whole_layer = request_.cells[s.cell].composition.eviction.layer_unit();
      const std::size_t n_lanes = whole_layer ? config_.n_kv_heads : 1;
      ChunkedStream& chunked = chunked_.emplace_back();
      chunked.stream = stream;
      chunked.per_layer = config_.n_kv_heads / n_lanes;
      for (std::size_t layer = 0; layer < config_.n_layers; ++layer)
        for (std::size_t lane = 0; lane < config_.n_kv_heads; lane += n_lanes)
          chunked.units.push_back({layer, lane, n_lanes});
    }
  }

  /// `end`: tokens of the prompt that have been processed.
  void cut_chunks(std::size_t end, bool last) {
    struct Cut {
      std::size_t stream = 0;
      ChunkedUnit* unit = nullptr;
    };
    std::vector<Cut> cuts;
    for (ChunkedStream& chunked : chunked_)
      for (ChunkedUnit& unit : chunked.units)
        for (std::size_t stream = chunked.stream; stream < streams_.size(); ++stream)
          if (stream == chunked.stream || (last && streams_[stream].leader == chunked.stream))
            cuts.push_back({stream, &unit});
    std::vector<std::unique_ptr<RankedResidents>> ranked(cuts.size());
    std::vector<std::vector<Position>> kept(cuts.size());
    workers_.run(cuts.size(), [&](std::size_t i) {
      const auto [number, unit] = cuts[i];
      const Stream& stream = streams_[number];
      const std::size_t lane = unit->layer * config_.n_kv_heads + unit->first_lane;
      auto made = std::make_unique<RankedResidents>(
          sequence_, streams_[stream.leader].own[unit->layer], *unit,
          request_.cells[stream.cell].composition.eviction, plan_.cells[stream.cell].lane_budget[lane],
          unit->residents.size() + length_ - prompt_, request_, number, asked_.decisions);
      kept[i] = made->kept();
      if (last) ranked[i] = std::move(made);
    });
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const auto [number, unit] = cuts[i];
      if (last) {
        layers_[unit->layer].units.push_back(ranked[i]->unit());
        ranked_.push_back(std::move(ranked[i]));
        continue;
      }
      unit->residents = std::move(kept[i]);
      if (asked_.positions == LoopPositions::cache_once) unit->shifts = dropped_before(unit->residents, end);
    }
    if (last) chunked_.clear();
  }

  /// The cut: what every cache holds now, and where its keys are from here on.
  void end_prompt() {
    std::vector<std::vector<IdleLane>> ends(request_.cells.size());
    for (Layer& layer : layers_)
      for (LoopUnit& unit : layer.units)
        for (Cache& cache : unit.caches()) {
          const Stream& stream = streams_[cache.cell];
          if (stream.mode == asked_.modes.front() && stream.script.front().turn == 0)
            outcome_of(stream.cell).kept_tokens +=
                static_cast<double>(cache.residents.slots().size() * unit.n_lanes) / lanes();
          if (unit.text.empty()) ends[stream.cell].push_back({kept_ends(cache.residents.slots(), prompt_)});
          if (asked_.positions != LoopPositions::cache_once) continue;
          std::vector<Position> kept;
          for (const Position position : cache.residents.slots()) {
            kept.push_back(unit.text_position(position, prompt_));
            if (static_cast<std::size_t>(kept.back()) >= first_fed_) kept.pop_back();
          }
          unit.shifts.push_back(dropped_before(kept, first_fed_));
        }
    for (std::size_t cell = 0; cell < request_.cells.size(); ++cell)
      for (const std::string& told :
           {plan_.cells[cell].idle, idle_scores(request_.cells[cell].composition, ends[cell])})
        if (!told.empty()) outcome_of(cell).idle.push_back(told);
  }

  // One step of the answers.

  void begin_step() {
    active_.clear();
    rows_.clear();
    row_of_stream_.assign(streams_.size(), kInactive);
  }
  /// `tokens`: block_ of them, from position_ on.
  void add_to_step(std::size_t stream, std::span<const std::int32_t> tokens) {
    row_of_stream_[stream] = rows_.size();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      active_.push_back(stream);
      rows_.push_back({tokens[i], position_ + i});
    }
  }

  /// Feeds the token at a position to every stream that has not ended. Returns whether another follows.
  bool step(std::size_t position) {
    progress_.check();
    position_ = position;
    again_ = position < prompt_;
    begin_step();
    const std::size_t at = position - first_fed_;
    for (std::size_t stream = 0; stream < streams_.size(); ++stream)
      if (!streams_[stream].done) add_to_step(stream, std::span(streams_[stream].text).subspan(at, 1));
    drifting_.clear();
    for (std::size_t row = 0; row < active_.size(); ++row) {
      Stream& stream = streams_[active_[row]];
      if (stream.mode != LoopMode::teacher || stream.is_reference || !stream.predicts_after(at + 1)) continue;
      stream.drift.resize(config_.n_layers);
      drifting_.push_back(row);
    }
    batch_.forward(
        rows_,
        [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
          attend(layer, tensors, attended);
          for (const std::size_t row : drifting_)
            streams_[active_[row]].drift[layer].add_queries(
                tensors.queries(row_of_reference(row), 0, config_.n_heads),
                tensors.queries(row, 0, config_.n_heads));
        },
        [&](std::uint32_t layer, std::span<const float> hidden) {
          const auto of_row = [&](std::size_t row) {
            return hidden.subspan(row * config_.hidden_size, config_.hidden_size);
          };
          for (const std::size_t row : drifting_)
            streams_[active_[row]].drift[layer].add_residual(of_row(row_of_reference(row)), of_row(row));
        });
    store_pairs();
    if (again_) note_stored();
    count_residents();
    predict();
    return std::any_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return !stream.done; });
  }

  /// What representations hold after the cut; where the last prompt token is fed again, with its new row.
  void note_stored() {
    for_each_cache([&](LoopUnit&, Cache& cache) {
      const Stream& stream = streams_[cache.cell];
      if (cache.stored && stream.mode == asked_.modes.front() && stream.script.front().turn == 0)
        outcome_of(stream.cell).kept_bits += cache.stored->ledger().bits();
    });
  }

  /// Layers that are stored together have both processed the tokens of the step.
  void store_pairs() {
    std::vector<float> keys, values;
    for (std::size_t number = 0; number < layers_.size(); ++number)
      for (LoopUnit& unit : layers_[number].units)
        for (Cache& cache : unit.caches()) {
          const std::size_t row = row_of_stream_[cache.cell];
          if (!cache.stored || row == kInactive) continue;
          const Stream& stream = streams_[cache.cell];
          const std::optional<int> partner = layers_[number].represented->partner(*unit.unit, stream.cell);
          if (!partner) continue;
          const OwnRows& there = stream.own[static_cast<std::size_t>(*partner)];
          const std::size_t index = position_ - stream.first_own, dim = config_.head_dim;
          keys.clear();
          values.clear();
          for (std::size_t lane = unit.first_lane; lane < unit.first_lane + unit.n_lanes; ++lane) {
            keys.insert(keys.end(), there.keys.row(lane, index), there.keys.row(lane, index) + dim);
            values.insert(values.end(), there.values.row(lane, index), there.values.row(lane, index) + dim);
          }
          if (again_) rejoin(unit, cache, stream.own[number], index);
          cache.stored->pair(cache.own_slot, {keys.data(), unit.n_lanes, dim, dim},
                             {values.data(), unit.n_lanes, dim, dim});
        }
  }

  /// In a layer that is stored together with another, the last prompt token has been attended as both prompts
  /// left it; now it takes its slot anew, as it has come in this layer.
  void rejoin(const LoopUnit& unit, Cache& cache, const OwnRows& own, std::size_t index) const {
    const std::size_t dim = config_.head_dim;
    std::vector<float> keys, values;
    for (std::size_t lane = unit.first_lane; lane < unit.first_lane + unit.n_lanes; ++lane) {
      keys.insert(keys.end(), own.keys.row(lane, index), own.keys.row(lane, index) + dim);
      values.insert(values.end(), own.values.row(lane, index), own.values.row(lane, index) + dim);
    }
    const MatrixView all_keys{keys.data(), unit.n_lanes, dim, dim},
        all_values{values.data(), unit.n_lanes, dim, dim};
    cache.stored->join({&cache.own_slot, 1}, {static_cast<Position>(position_), all_keys, all_values, {}});
  }

  std::size_t row_of_reference(std::size_t row) const {
    return row_of_stream_[streams_[active_[row]].reference];
  }

  void attend(std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
    keep_own(layer, tensors);
    Layer& state = layers_[layer];
    if (layers_choose_for_others()) {
      state.queries.clear();
      for (std::size_t row = 0; row < rows_.size(); ++row)
        for (std::size_t head = 0; head < config_.n_heads; ++head) {
          const std::span<const float> query = tensors.queries(row, head, 1).row(0);
          state.queries.insert(state.queries.end(), query.begin(), query.end());
        }
    }
    workers_.run(state.units.size() + rows_.size() + chunked_.size(), [&](std::size_t task) {
      if (task < state.units.size()) return attend_unit(layer, state.units[task], tensors, attended);
      task -= state.units.size();
      if (task >= rows_.size())
        attend_chunk(layer, chunked_[task - rows_.size()], tensors, attended);
      else if (streams_[active_[task]].is_reference)
        attend_all(layer, task, tensors, attended);
    });
  }

  void keep_own(std::uint32_t layer, const StepTensors& tensors) {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      Stream& stream = streams_[active_[row]];
      OwnRows& own = stream.own[layer];
      const std::size_t index = rows_[row].position - stream.first_own;
      own.keys.set(index, tensors.keys(row, 0, config_.n_kv_heads));
      own.values.set(index, tensors.values(row, 0, config_.n_kv_heads));
      if (stream.prefill == Prefill::chunked && in_prompt_)
        own.queries.set(index, tensors.queries(row, 0, config_.n_heads));
    }
  }

  /// Where one lane's key and value of a text position lie for a row's query.
  SlotRow slot_row(std::uint32_t layer, std::size_t row, std::size_t lane, Position position) const {
    const std::int32_t window = config_.layer_window[layer];
    if (window >= 0 &&
        static_cast<std::size_t>(position) + static_cast<std::size_t>(window) <= rows_[row].position)
      return {};
    return text_row(streams_[active_[row]], layer, lane, position);
  }
  SlotRow text_row(const Stream& stream, std::size_t layer, std::size_t lane, Position position) const {
    const auto at = static_cast<std::size_t>(position);
    if (at >= stream.first_own) {
      const OwnRows& own = stream.own[layer];
      return {own.keys.row(lane, at - stream.first_own), own.values.row(lane, at - stream.first_own)};
    }
    const GroupTensors& tensors = *layers_[layer].tensors;
    return {tensors.keys(lane).row(at).data(), tensors.values(lane).row(at).data()};
  }

  /// What a lane attends, and by how much each key is nearer than in the text; no shifts: not at all.
  struct Attended {
    std::span<const Position> positions;
    std::span<const std::uint32_t> shifts{};
  };

  bool layers_choose_for_others() const {
    return std::any_of(plan_.selection_groups.begin(), plan_.selection_groups.end(),
                       [](const PartGroup& group) { return group.crosses; });
  }

  /// What one lane of one row attends of the positions that a codec has stored.
  void stored_slots(std::uint32_t layer, std::size_t row, std::size_t first_lane, std::size_t lane,
                    const Cache& cache, std::span<const Position> positions,
                    std::vector<SlotRow>& slots) const {
    const policy::CacheRows& stored = cache.stored->rows();
    slots.clear();
    for (std::size_t slot = 0; slot < positions.size(); ++slot) {
      SlotRow& at = slots.emplace_back(slot_row(layer, row, lane, positions[slot]));
      // A token that is attended beside the slots is read as it comes.
      if (at.key == nullptr || slot == stored.slots()) continue;
      at = {stored.keys(lane - first_lane).row(slot).data(),
            stored.values(lane - first_lane).row(slot).data(), stored.biases(lane - first_lane)[slot]};
    }
    if (const std::size_t own = lane - first_lane; stored.has_rest(own))
      slots.push_back({stored.rest_key(own).data(), stored.rest_value(own).data(), stored.rest_bias(own)});
  }

  const KeyRotation& rotation_of(std::uint32_t layer) const {
    const std::vector<std::uint32_t>& rotation = sequence_.model().layer_rotation;
    return *rotations_[rotation.empty() ? 0 : rotation[layer]];
  }

  /// What one lane of one row attends of the positions of the text. `rotated`: storage of keys that have
  /// moved.
  void text_slots(std::uint32_t layer, std::size_t row, std::size_t lane, const Attended& what,
                  std::vector<SlotRow>& slots, std::vector<float>& rotated) const {
    const std::size_t dim = config_.head_dim;
    slots.clear();
    rotated.resize(what.shifts.size() * dim);
    for (std::size_t slot = 0; slot < what.positions.size(); ++slot) {
      SlotRow& at = slots.emplace_back(slot_row(layer, row, lane, what.positions[slot]));
      if (what.shifts.empty() || what.shifts[slot] == 0 || at.key == nullptr) continue;
      float* to = rotated.data() + slot * dim;
      rotation_of(layer).rotate({at.key, dim}, what.shifts[slot], to);
      at.key = to;
    }
  }

  /// `n` query heads of one row, from `head` on, attend the slots.
  void attend_slots(std::size_t row, std::size_t head, std::size_t n, std::span<const SlotRow> slots,
                    const StepTensors& tensors, std::span<float> attended, SlotRows& rows) const {
    const std::size_t dim = config_.head_dim;
    rows.attend(sequence_.model().attn_scale, tensors.queries(row, head, n), slots, dim,
                attended.data() + (row * config_.n_heads + head) * dim);
  }

  /// One lane of one row: its queries attend the positions of the text.
  void attend_lane(std::uint32_t layer, std::size_t row, std::size_t lane, const Attended& what,
                   const StepTensors& tensors, std::span<float> attended, SlotRows& rows) const {
    thread_local std::vector<SlotRow> slots;
    thread_local std::vector<float> rotated;
    const std::size_t group = config_.n_heads / config_.n_kv_heads;
    text_slots(layer, row, lane, what, slots, rotated);
    attend_slots(row, lane * group, group, slots, tensors, attended, rows);
  }

  void attend_all(std::uint32_t layer, std::size_t row, const StepTensors& tensors,
                  std::span<float> attended) const {
    thread_local SlotRows rows;
    std::vector<Position> all(rows_[row].position + 1);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Position>(i);
    for (std::size_t lane = 0; lane < config_.n_kv_heads; ++lane)
      attend_lane(layer, row, lane, {all}, tensors, attended, rows);
  }

  void attend_chunk(std::uint32_t layer, const ChunkedStream& chunked, const StepTensors& tensors,
                    std::span<float> attended) const {
    thread_local SlotRows rows;
    thread_local std::vector<std::uint32_t> shifts;
    for (std::size_t i = 0; i < chunked.per_layer; ++i) {
      const ChunkedUnit& unit = chunked.units[layer * chunked.per_layer + i];
      for (std::size_t token = 0; token < block_; ++token) {
        // What was left, and the chunk up to the token itself.
        const std::span<const Position> seen =
            std::span(unit.residents).first(unit.residents.size() - block_ + token + 1);
        shifts_of(seen, unit.shifts, shifts);
        for (std::size_t lane = unit.first_lane; lane < unit.first_lane + unit.n_lanes; ++lane)
          attend_lane(layer, row_of_stream_[chunked.stream] + token, lane, {seen, shifts}, tensors, attended,
                      rows);
      }
    }
  }

  /// The shifts of what is attended now. `once`: of positions counted in the cache once, at the latest cut.
  void shifts_of(std::span<const Position> positions, std::span<const std::uint32_t> once,
                 std::vector<std::uint32_t>& shifts) const {
    shifts.clear();
    if (asked_.positions == LoopPositions::cache_step) dropped_between(positions, shifts);
    if (asked_.positions != LoopPositions::cache_once) return;
    for (const Position position : positions) {
      const auto at = static_cast<std::size_t>(position);
      shifts.push_back(at < once.size() ? once[at] : 0);
    }
  }

  void attend_unit(std::uint32_t layer, LoopUnit& unit, const StepTensors& tensors,
                   std::span<float> attended) const {
    for (std::size_t i = 0; i < unit.caches().size(); ++i)
      if (const std::size_t first = row_of_stream_[unit.caches()[i].cell]; first != kInactive)
        for (std::size_t row = first; row < first + block_; ++row)
          attend_cache(layer, unit, i, row, tensors, attended);
  }

  void attend_cache(std::uint32_t layer, LoopUnit& unit, std::size_t number, std::size_t row,
                    const StepTensors& tensors, std::span<float> attended) const {
    thread_local SlotRows rows;
    thread_local std::vector<float> weights;
    thread_local std::vector<double> mass;
    thread_local std::vector<Position> positions;
    thread_local std::vector<std::uint32_t> shifts;
    thread_local std::vector<SlotRow> slot_rows, read_rows;
    thread_local std::vector<float> rotated;
    Cache& cache = unit.caches()[number];
    UnitDriver<IndexStore>& driver = unit.unit->driver();
    const std::size_t group = config_.n_heads / config_.n_kv_heads;
    const std::size_t first = unit.first_lane, n = unit.n_lanes, position = rows_[row].position;
    const Token token{unit.policy_position(position, prompt_), tensors.keys(row, first, n),
                      tensors.values(row, first, n), tensors.queries(row, first * group, n * group),
                      class_at(position, rows_[row].token)};
    if (again_) {
      driver.ask_again(cache, token);
      begin_parts(layer, unit, cache, token);
    } else {
      driver.admit(cache, token, in_prompt_ ? 0 : static_cast<std::uint32_t>(position + 1 - prompt_));
    }
    positions.assign(cache.attended.begin(), cache.attended.end());
    if (!unit.text.empty())
      for (Position& at : positions) at = unit.text_position(at, prompt_);
    shifts_of(positions, unit.shifts.empty() ? std::span<const std::uint32_t>{} : unit.shifts[number],
              shifts);
    const std::size_t slots = positions.size();
    if (cache.reads) choose(layer, unit, cache, row, token);
    weights.resize(n * group * slots);
    mass.resize(n * group);
    for (std::size_t lane = first; lane < first + n; ++lane) {
      if (cache.stored)
        stored_slots(layer, row, first, lane, cache, positions, slot_rows);
      else
        text_slots(layer, row, lane, {positions, shifts}, slot_rows, rotated);
      if (!cache.reads) attend_slots(row, lane * group, group, slot_rows, tensors, attended, rows);
      for (std::size_t g = 0; g < group; ++g) {
        const std::size_t head = (lane - first) * group + g;
        const std::span<float> to = std::span(weights).subspan(head * slots, slots);
        if (cache.reads) {
          std::ranges::fill(to, 0.0F);
          read_rows.clear();
          for (const std::size_t column : cache.reads->of(head)) read_rows.push_back(slot_rows[column]);
          // A row for the rest, behind the slots, is always read.
          if (slot_rows.size() > slots) read_rows.push_back(slot_rows.back());
          attend_slots(row, lane * group + g, 1, read_rows, tensors, attended, rows);
          for (std::size_t i = 0; i < cache.reads->of(head).size(); ++i)
            to[cache.reads->of(head)[i]] = rows.weights()(0, i);
        } else {
          std::ranges::copy(rows.weights().row(g).first(slots), to.begin());
        }
        mass[head] = 0;
        for (const float weight : to) mass[head] += static_cast<double>(weight);
      }
    }
    SlotAttention to_slots;
    if (driver.needs_rows()) to_slots = {{weights.data(), n * group, slots, slots}, mass};
    if (!again_ && cache.decoder) driver.attended(cache, token, to_slots);
    if (!again_ && cache.stored)
      cache.stored->settle(cache.own_slot, {weights.data(), n * group, slots, slots});
    if (!in_prompt_) return;
    for (Cache& other : unit.caches()) {
      if (other.cell == cache.cell || streams_[other.cell].leader != cache.cell) continue;
      driver.admit(other, token, 0);
      if (other.decoder) driver.attended(other, token, to_slots);
    }
  }

  /// The last prompt token has come again: what is kept is coded and indexed now, with its new row. Layers
  /// that are stored together begin as their prompts are (rejoin()).
  void begin_parts(std::uint32_t layer, const LoopUnit& unit, Cache& cache, const Token& token) const {
    if (streams_[cache.cell].prefill != Prefill::dense) return;
    const Layer& state = layers_[layer];
    const std::size_t cell = streams_[cache.cell].cell;
    const bool together = state.represented->partner(*unit.unit, cell).has_value();
    state.represented->store(*unit.unit, cache, cell, together ? nullptr : &token);
    with_tokens(layer, unit, cache, [&](const policy::StoredTokens& tokens) {
      state.selected->begin(*unit.unit, cache, cell, &tokens);
    });
  }

  /// Shows `use` what the cache holds, as its selector sees it.
  template <class Use>
  void with_tokens(std::uint32_t layer, const LoopUnit& unit, const Cache& cache, Use use) const {
    thread_local std::vector<policy::LaneRows> lanes;
    if (cache.stored) return use(policy::StoredTokens(cache.stored->rows()));
    const Stream& stream = streams_[cache.cell];
    const std::size_t from = leader_of(layer, unit, stream).value_or(layer);
    lanes.clear();
    for (std::size_t lane = unit.first_lane; lane < unit.first_lane + unit.n_lanes; ++lane)
      lanes.push_back({layers_[from].tensors->keys(lane), layers_[from].tensors->values(lane),
                       stream.own[from].keys.of(lane), stream.own[from].values.of(lane)});
    use(policy::StoredTokens(cache.residents.slots(), lanes, static_cast<Position>(stream.first_own)));
  }

  /// The layer that chooses for the unit's, if another does.
  std::optional<int> leader_of(std::uint32_t layer, const LoopUnit& unit, const Stream& stream) const {
    return layers_[layer].selected->leader(*unit.unit, stream.cell);
  }

  /// The cache's selector chooses what the queries of a row read.
  void choose(std::uint32_t layer, const LoopUnit& unit, Cache& cache, std::size_t row,
              const Token& token) const {
    const std::optional<int> leader = leader_of(layer, unit, streams_[cache.cell]);
    const std::size_t group = config_.n_heads / config_.n_kv_heads, dim = config_.head_dim;
    policy::Asking asking{.position = token.position,
                          .own_slot = cache.slot_of_own(),
                          .queries = token.queries,
                          .scale = sequence_.model().attn_scale};
    if (leader)
      asking.queries = {layers_[static_cast<std::size_t>(*leader)].queries.data() +
                            (row * config_.n_heads + unit.first_lane * group) * dim,
                        unit.n_lanes * group, dim, dim};
    with_tokens(layer, unit, cache,
                [&](const policy::StoredTokens& tokens) { cache.reads->select(asking, tokens); });
  }

  std::uint8_t class_at(std::size_t position, std::int32_t id) const {
    if (position < tokens_.size() && tokens_[position] == id)
      return class_of_flags(sequence_.flags(position));
    return asked_.token_flags ? class_of_flags(asked_.token_flags(id)) : std::uint8_t{0};
  }

  template <class Visit>
  void for_each_cache(Visit visit) {
    for (Layer& layer : layers_)
      for (LoopUnit& unit : layer.units)
        for (Cache& cache : unit.caches()) visit(unit, cache);
  }

  void count_residents() {
    if ((position_ - first_fed_) % kBlock == kBlock - 1)
      for_each_cache([](LoopUnit&, Cache& cache) { cache.residents.begin_block(); });
    for (const std::size_t stream : active_)
      streams_[stream].out().resident.push_back(
          streams_[stream].is_reference ? static_cast<std::uint64_t>(lanes()) * (position_ + 1) : 0);
    for_each_cache([&](LoopUnit& unit, Cache& cache) {
      if (streams_[cache.cell].done) return;
      StreamOutcome& out = streams_[cache.cell].out();
      out.resident.back() += cache.residents.slots().size() * unit.n_lanes;
      if (cache.reads) add_reads(unit, *cache.reads, out);
      if (!cache.stored) return;
      out.stored_bits.resize(out.resident.size());
      out.stored_bits.back() += cache.stored->ledger().bits();
    });
  }

  void add_reads(const LoopUnit& unit, const SelectedReads& reads, StreamOutcome& out) const {
    const std::size_t group = config_.n_heads / config_.n_kv_heads;
    out.reads.resize(out.resident.size());
    StepReads& step = out.reads.back();
    for (std::size_t head = 0; head < unit.n_lanes * group; ++head)
      step.read_tokens += static_cast<double>(reads.of(head).size()) / static_cast<double>(group);
    for (std::size_t lane = 0; lane < unit.n_lanes; ++lane) step.loaded_tokens += reads.lane_tokens(lane);
    step.index_bits_read += reads.index_bits_read();
    step.index_bits += reads.index_bits();
  }

  /// The tokens that follow the latest step, where they are not known.
  void predict() {
    const std::size_t fed = position_ + 1 - first_fed_, vocabulary = config_.vocab_size;
    predicting_.clear();
    for (std::size_t row = 0; row < active_.size(); ++row)
      if (streams_[active_[row]].predicts_after(fed)) predicting_.push_back(row);
    if (predicting_.empty()) return;
    const std::vector<float> logits = batch_.logits(predicting_);
    for (const float logit : logits)
      if (!std::isfinite(logit))
        input_error(
            "the logits after token " + std::to_string(position_) + " are not finite", "model",
            "The checkpoint holds NaN or infinite weights, or is not the model config.json describes.");
    const auto of = [&](std::size_t i) { return std::span(logits).subspan(i * vocabulary, vocabulary); };
    std::vector<std::size_t> place(streams_.size(), kInactive);  // among predicting_
    std::vector<std::size_t> ended;
    for (std::size_t i = 0; i < predicting_.size(); ++i) {
      const std::size_t number = active_[predicting_[i]];
      place[number] = i;
      if (take(streams_[number], of(i), place, of)) ended.push_back(number);
    }
    for (const std::size_t stream : ended) end_turn(stream);
  }

  /// The next token of one stream. A reference comes before the streams that are compared with it.
  template <class Logits>
  bool take(Stream& stream, std::span<const float> logits, const std::vector<std::size_t>& place, Logits of) {
    const bool teacher = stream.mode == LoopMode::teacher;
    const bool forced = feeds_answer(asked_, stream.mode, stream.turn());
    const std::size_t k = stream.out().tokens.size();
    std::int32_t token = model::choose_token(logits, {}, 0);
    if (forced) token = asked_.turns[stream.turn()].answer[k];
    if (stream.is_reference) stream.out().margins.push_back(margin(logits));
    if (teacher && !stream.is_reference) {
      token = streams_[stream.reference].text.back();
      stream.out().measures.push_back(measure_token(of(place[stream.reference]), logits, token));
    }
    const bool eos = !forced && std::find(asked_.eos.begin(), asked_.eos.end(), token) != asked_.eos.end();
    return stream.take(token, eos || k + 1 == most_answer_tokens(asked_, stream.mode, stream.turn()));
  }

  void end_turn(std::size_t number) {
    Stream& stream = streams_[number];
    if (!stream.is_reference) note_caches(number);
    stream.end_turn();
  }

  /// What a stream's caches hold when a turn ends.
  void note_caches(std::size_t number) {
    Stream& stream = streams_[number];
    StreamOutcome& out = stream.out();
    const std::vector<Position>& evidence =
        stream.turn() == 0 ? plan_.evidence : asked_.turns[stream.turn()].evidence;
    std::vector<std::uint64_t> lanes_with(evidence.size());
    bool unchanged = true;
    if (asked_.decisions) out.resident_intervals.resize(std::size_t{config_.n_layers} * config_.n_kv_heads);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (LoopUnit& unit : layers_[layer].units)
        for (const Cache& cache : unit.caches()) {
          if (cache.cell != number) continue;
          std::vector<Position> held(cache.residents.slots().begin(), cache.residents.slots().end());
          for (Position& position : held) position = unit.text_position(position, prompt_);
          std::sort(held.begin(), held.end());
          out.held_tokens += static_cast<double>(held.size() * unit.n_lanes) / lanes();
          unchanged = unchanged && cache.stored && holds_as_it_came(layer, unit, cache);
          for (std::size_t i = 0; i < evidence.size(); ++i)
            if (std::binary_search(held.begin(), held.end(), evidence[i])) lanes_with[i] += unit.n_lanes;
          if (!asked_.decisions) continue;
          // Steps count from the cut: the last one fed, and one more to end open intervals.
          std::vector<ResidentInterval> history =
              cache.residents.history(static_cast<std::uint32_t>(position_ + 2 - prompt_));
          for (ResidentInterval& interval : history)
            interval.position = unit.text_position(interval.position, prompt_);
          for (std::size_t lane = unit.first_lane; lane < unit.first_lane + unit.n_lanes; ++lane)
            out.resident_intervals[layer * config_.n_kv_heads + lane] = history;
        }
    note_idle(stream, unchanged);
    if (evidence.empty()) return;
    double held = 0, nowhere = 0;
    for (const std::uint64_t n : lanes_with) {
      held += static_cast<double>(n) / lanes();
      nowhere += n == 0 ? 1 : 0;
    }
    out.evidence_held = held / static_cast<double>(evidence.size());
    out.evidence_nowhere = nowhere / static_cast<double>(evidence.size());
  }

  bool holds_as_it_came(std::size_t layer, const LoopUnit& unit, const Cache& cache) const {
    for (std::size_t lane = 0; lane < unit.n_lanes; ++lane) {
      const auto row = [&](Position position) {
        return text_row(streams_[cache.cell], layer, unit.first_lane + lane, position);
      };
      if (!is_unchanged(
              cache.stored->rows(), lane,
              [&](Position at) { return std::span(row(at).key, config_.head_dim); },
              [&](Position at) { return std::span(row(at).value, config_.head_dim); }))
        return false;
    }
    return true;
  }

  /// What a representation and a selection have left as it was, when the first turn ends.
  void note_idle(Stream& stream, bool unchanged) {
    if (stream.mode != asked_.modes.front() || stream.turn() != 0) return;
    const policy::Composition& composition = request_.cells[stream.cell].composition;
    const StreamOutcome& out = stream.out();
    std::vector<std::string>& idle = outcome_of(stream.cell).idle;
    if (composition.representation && unchanged) idle.push_back(idle_representation(composition));
    if (composition.selection &&
        std::equal(out.reads.begin(), out.reads.end(), out.resident.begin(), out.resident.end(),
                   [](const StepReads& step, std::uint64_t held) { return step.loaded_tokens >= held; }))
      idle.push_back(idle_selection(composition));
  }

  std::vector<LoopOutcome> outcomes() {
    first_.prompt = prompt_;
    first_.cut = sequence_.cut().text();
    for (std::size_t cell = 0; cell < request_.cells.size(); ++cell)
      if (prefill_of(cell) != Prefill::dense) outcome_of(cell).first_reference = first_reference_of_own_;
    for (std::size_t turn = 0; turn < outcomes_.size(); ++turn) {
      outcomes_[turn] = first_;
      outcomes_[turn].fed = turn == 0 ? tokens_.size() - first_fed_ : asked_.turns[turn].question.size();
    }
    // References of streams that process the prompt themselves come after the others, mode by mode.
    for (const bool own : {false, true})
      for (Stream& stream : streams_)
        for (std::size_t i = 0; processes_prompt(stream) == own && i < stream.script.size(); ++i) {
          LoopOutcome& outcome = outcomes_[stream.script[i].turn];
          std::vector<StreamOutcome>& to =
              stream.is_reference ? outcome.references : outcome.cells[cell_of_request_[stream.cell]].modes;
          to.push_back(std::move(stream.turns[i]));
        }
    for (std::size_t cell = 0; cell < request_.cells.size(); ++cell)
      if (const std::size_t same = plan_.cells[cell].same_as; same != Plan::kNone)
        for (LoopOutcome& outcome : outcomes_) {
          LoopCell& out = outcome.cells[cell_of_request_[cell]];
          const std::uint64_t asked_tokens = out.budget_tokens;
          out = outcome.cells[cell_of_request_[same]];
          out.budget_tokens = asked_tokens;
        }
    return std::move(outcomes_);
  }

  /// Steps after which intervals that have ended are put away.
  static constexpr std::size_t kBlock = 32;
  static constexpr std::size_t kInactive = ~std::size_t{0};

  const trace::Sequence& sequence_;
  const std::span<const std::int32_t> tokens_;
  const model::ModelConfig& config_;
  const LoopRequest& asked_;
  Progress& progress_;
  Workers workers_;
  const LoopPlan loop_plan_;
  const std::size_t prompt_, first_fed_, length_;
  model::cpu::StepBatch batch_;
  std::vector<std::optional<KeyRotation>> rotations_;  // by number, if positions are not those of the text
  Request request_;                                    // the cells that a running model can serve
  std::vector<std::size_t> cell_of_request_;           // their numbers in what was asked
  Plan plan_;
  std::deque<Stream> streams_;  // a reference, then the cells that are compared with it
  std::size_t first_reference_of_own_ = 0;
  std::vector<ChunkedStream> chunked_;                    // while the prompt is processed
  std::vector<std::unique_ptr<RankedResidents>> ranked_;  // the units of streams whose prompt came in chunks
  std::vector<Layer> layers_;
  LoopOutcome first_;  // what all turns share
  std::vector<LoopOutcome> outcomes_;
  // Of the present step, or block of steps in prompts that cells process themselves.
  std::size_t position_ = 0, block_ = 1;  // its first position, and tokens of every stream
  bool in_prompt_ = false, again_ = false;
  std::vector<model::cpu::StepBatch::Row> rows_;     // block_ of each stream
  std::vector<std::size_t> active_, row_of_stream_;  // streams by row, first rows by stream
  std::vector<std::size_t> drifting_, predicting_;   // rows
};

}  // namespace

const char* loop_mode_name(LoopMode mode) {
  return mode == LoopMode::teacher ? "teacher" : "greedy";
}

const char* turn_protocol_name(TurnProtocol protocol) {
  constexpr const char* kNames[] = {"requests", "golden", "own"};
  return kNames[static_cast<std::size_t>(protocol)];
}

const char* prefill_name(Prefill prefill) {
  constexpr const char* kNames[] = {"dense", "stream", "chunked"};
  return kNames[static_cast<std::size_t>(prefill)];
}

const char* loop_positions_name(LoopPositions positions) {
  constexpr const char* kNames[] = {"text", "cache-step", "cache-once"};
  return kNames[static_cast<std::size_t>(positions)];
}

std::vector<LoopOutcome> closed_loop(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
                                     const model::ModelConfig& config, const model::Weights& weights,
                                     const LoopRequest& request, Progress& progress) {
  if (request.modes.empty()) bug("a closed loop without a mode");
  if (tokens.size() != sequence.length() || sequence.recorded_prompt_length() != sequence.length())
    bug("the closed loop takes a prompt that nothing follows");
  for (std::size_t turn = 0; turn < request.turns.size(); ++turn)
    for (const LoopMode mode : request.modes)
      if (most_answer_tokens(request, mode, turn) == 0)
        usage_error("must be at least 1", "--max-new-tokens", "An answer has at least one token.");
  return ClosedLoop(sequence, tokens, config, weights, request, progress).run();
}

std::uint64_t estimate_loop_bytes(const trace::Sequence& sequence, const model::ModelConfig& config,
                                  const LoopRequest& request) {
  const std::vector<std::int32_t> tokens(sequence.length());
  const LoopPlan plan = plan_loop(sequence, request);
  std::uint64_t dense = 0, stream = 0, chunked = 0;
  for (const auto& cell : plan.cells) {
    if (!cell.refused.empty()) continue;
    (cell.prefill == Prefill::dense ? dense : cell.prefill == Prefill::stream ? stream : chunked) += 1;
  }
  const std::uint64_t fed = most_fed(sequence, tokens, request), prompt = sequence.prompt_length();
  std::uint64_t scripts = 0;
  for (const LoopMode mode : request.modes)
    scripts += scripts_of(request, mode, fed_at_first(sequence, tokens)).size();
  const std::uint64_t token = 2ULL * config.n_layers * config.n_kv_heads * config.head_dim;
  const std::uint64_t queries = std::uint64_t{config.n_layers} * config.n_heads * config.head_dim;
  const std::uint64_t own = stream + chunked;
  std::uint64_t stored = 0;  // cells whose representation keeps numbers of its own
  bool pairs = false;        // some store layers together, so that each layer reads another's prompt, too
  for (std::size_t cell = 0; cell < request.cells.size(); ++cell) {
    const std::optional<policy::Part>& representation = request.cells[cell].composition.representation;
    if (!plan.cells[cell].refused.empty() || !representation) continue;
    ++stored;
    pairs = pairs || stores_pairs(sequence.model(), *representation, 1);
  }
  const std::uint64_t streams = (dense > 0 ? dense + 1 : 0) + (own > 0 ? own + 1 : 0);
  // Streams that process the prompt themselves keep all of its keys and values; where it comes in chunks also
  // its queries, and what the policies rank.
  return (scripts * (streams * (fed * token + config.vocab_size + 8ULL * config.hidden_size) +
                     stored * (prompt + fed) * token + (own > 0 ? own + 1 : 0) * prompt * token +
                     chunked * prompt * (queries + token)) +
          (pairs ? 3 : 1) * sequence.length() * token) *
         sizeof(float);
}

}  // namespace kvsim::sim
