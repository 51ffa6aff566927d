#include "sim/loop/closed_loop.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"
#include "sim/loop/slot_rows.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/replay_unit.hpp"
#include "traces/model/cpu/step_batch.hpp"
#include "traces/model/sampling.hpp"

namespace kvsim::sim {
namespace {

using policy::Position;

/// Whether the policy, or one that it wraps, reads attention that only the full cache computes.
bool reads_full_rows(const policy::Part& part) {
  const policy::Params& params = part.params;
  return std::any_of(
             params.entries.begin(), params.entries.end(),
             [](const ParamValue& value) { return value.name == "feedback" && value.text == "raw"; }) ||
         std::any_of(params.parts.begin(), params.parts.end(),
                     [](const auto& wrapped) { return reads_full_rows(*wrapped.second); });
}

/// Why a running model cannot serve the policy; empty: it can.
std::string refusal(const policy::Part& eviction) {
  const std::string name = eviction.spec->name + ": ";
  if (eviction.spec->make_oracle) return name + "knows the future, which a running model does not have";
  if (reads_full_rows(eviction))
    return name + "reads attention on evicted tokens (feedback=raw), which a running model does not compute";
  if (eviction.make_eviction({.head_dim = 1, .value_dim = 1})->streams_prompt())
    return name + "takes the prompt token by token; here the prompt is processed once, for all policies";
  return {};
}

/// Tokens after the recorded prompt that some stream may reach.
std::size_t most_new_tokens(const LoopRequest& request) {
  const auto asked = [&](LoopMode mode) {
    return std::find(request.modes.begin(), request.modes.end(), mode) != request.modes.end();
  };
  const std::size_t own = static_cast<std::size_t>(request.max_new_tokens);
  std::size_t most = asked(LoopMode::greedy) ? own : 0;
  if (asked(LoopMode::teacher)) most = std::max(most, request.answer.empty() ? own : request.answer.size());
  return most;
}

/// The keys and values of the tokens that a stream is fed, in one layer.
struct OwnRows {
  std::vector<float> keys, values;  // [kv_heads, steps, dim]
};

/// One cell in one mode, or the reference of a mode.
struct Stream {
  LoopMode mode = LoopMode::teacher;
  bool reference = false;
  std::size_t cell = 0;  // of the request, if not a reference
  bool done = false;
  std::vector<OwnRows> own;  // per layer
  StreamOutcome out;
};

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
        prompt_(sequence.prompt_length()),
        first_fed_(sequence.first_measured()),
        length_(tokens.size() + most_new_tokens(asked)),
        batch_(config, weights, asked.elem, length_, workers_) {}

  LoopOutcome run() {
    choose_cells();
    plan_ = outline(sequence_, request_);
    AllocationPass allocation_pass(sequence_, request_, plan_);
    progress_.total.store(allocation_pass.work() + prompt_work() + std::uint64_t{steps()} * step_work(),
                          std::memory_order_relaxed);
    allocation_pass.run(workers_, progress_);
    split_budgets(sequence_, request_, allocation_pass, plan_);
    make_streams();
    rank_prompt();
    note_kept();
    for (std::size_t position = first_fed_; step(position); ++position) progress_.advance(step_work());
    return outcome();
  }

 private:
  struct Layer {
    GroupTensors tensors;
    std::vector<ReplayUnit> units;
  };

  std::size_t steps() const { return length_ - first_fed_ - 1; }
  std::uint64_t step_work() const { return std::uint64_t{config_.n_layers} * config_.n_heads; }
  std::uint64_t prompt_work() const {
    std::size_t rows = 0;
    for (const EvictionGroup& group : plan_.eviction_groups) rows = std::max(rows, group.requirement.rows);
    return step_work() * (prompt_ - first_prompt_row(sequence_, rows));
  }

  void choose_cells() {
    request_.seed = asked_.seed;
    request_.threads = asked_.threads;
    request_.tables = asked_.tables;
    out_.cells.resize(asked_.cells.size());
    for (std::size_t i = 0; i < asked_.cells.size(); ++i) {
      out_.cells[i].skipped = refusal(asked_.cells[i].composition.eviction);
      if (!out_.cells[i].skipped.empty()) continue;
      request_.cells.push_back(asked_.cells[i]);
      cell_of_request_.push_back(i);
    }
    if (request_.cells.empty())
      usage_error(out_.cells.empty() ? "no cell to evaluate" : out_.cells[0].skipped);
  }

  void make_streams() {
    for (std::size_t i = 0; i < request_.cells.size(); ++i) {
      LoopCell& cell = out_.cells[cell_of_request_[i]];
      cell.skipped = plan_.cells[i].skipped;
      cell.budget_tokens = plan_.cells[i].budget_tokens;
    }
    const std::size_t floats = std::size_t{config_.n_kv_heads} * steps() * config_.head_dim;
    const auto add = [&](LoopMode mode, bool reference, std::size_t cell) {
      Stream& stream = streams_.emplace_back();
      stream.mode = mode;
      stream.reference = reference;
      stream.cell = cell;
      stream.own.assign(config_.n_layers, {std::vector<float>(floats), std::vector<float>(floats)});
    };
    for (const LoopMode mode : asked_.modes) {
      add(mode, true, 0);
      for (std::size_t i = 0; i < request_.cells.size(); ++i)
        if (plan_.cells[i].skipped.empty()) add(mode, false, i);
    }
  }

  /// Every layer's policies observe the prompt, and every stream's caches begin.
  void rank_prompt() {
    std::vector<std::unique_ptr<Layer>> layers(config_.n_layers);
    workers_.run(config_.n_layers, [&](std::size_t index) {
      const LaneGroup group{static_cast<std::uint32_t>(index), 0, config_.n_kv_heads};
      layers[index] = std::make_unique<Layer>(Layer{GroupTensors(sequence_, group, plan_.needs), {}});
      Layer& layer = *layers[index];
      std::vector<Subscription> subscriptions;
      for (const EvictionGroup& eviction_group : plan_.eviction_groups)
        for (ReplayUnit& unit :
             replay_units(eviction_group, layer.tensors, request_.seed, request_.tables, {}, length_))
          layer.units.push_back(std::move(unit));
      for (ReplayUnit& unit : layer.units) subscriptions.push_back(unit.subscription());
      replay_prompt(layer.tensors, subscriptions, progress_);
      for (ReplayUnit& unit : layer.units) {
        const std::vector<std::size_t>& cells = unit.eviction_group().cells;
        for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
          const std::size_t cell = streams_[stream].cell;
          if (streams_[stream].reference || std::find(cells.begin(), cells.end(), cell) == cells.end())
            continue;
          const std::size_t lane = index * config_.n_kv_heads + unit.first_lane();
          unit.start(stream, plan_.cells[cell].lane_budget[lane], asked_.decisions);
        }
      }
    });
    layers_ = std::move(layers);
  }

  template <class Visit>
  void for_each_cache(Visit visit) {
    for (const auto& layer : layers_)
      for (ReplayUnit& unit : layer->units)
        for (Cache& cache : unit.caches()) visit(unit, cache);
  }

  double lanes() const { return static_cast<double>(config_.n_layers) * config_.n_kv_heads; }

  void note_kept() {
    for_each_cache([&](ReplayUnit& unit, Cache& cache) {
      const Stream& stream = streams_[cache.cell];
      if (stream.mode != asked_.modes.front()) return;
      out_.cells[cell_of_request_[stream.cell]].kept_tokens +=
          static_cast<double>(cache.residents.slots().size() * unit.n_lanes()) / lanes();
    });
  }

  std::uint8_t class_at(std::size_t position, std::int32_t id) const {
    if (position < tokens_.size()) return class_of_flags(sequence_.flags(position));
    return asked_.token_flags ? class_of_flags(asked_.token_flags(id)) : std::uint8_t{0};
  }

  /// Feeds the token at a position to every stream that has not ended. Returns whether another follows.
  bool step(std::size_t position) {
    progress_.check();
    position_ = position;
    active_.clear();
    fed_.clear();
    row_of_stream_.assign(streams_.size(), kInactive);
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      if (streams_[stream].done) continue;
      row_of_stream_[stream] = active_.size();
      active_.push_back(stream);
      fed_.push_back(position < tokens_.size() ? tokens_[position]
                                               : streams_[stream].out.tokens[position - tokens_.size()]);
    }
    batch_.forward(fed_, position,
                   [&](std::uint32_t layer, const model::cpu::StepTensors& tensors,
                       std::span<float> attended) { attend(layer, tensors, attended); });
    count_residents();
    if (position + 1 < tokens_.size()) return true;
    predict();
    return std::any_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return !stream.done; });
  }

  void attend(std::uint32_t layer, const model::cpu::StepTensors& tensors, std::span<float> attended) {
    keep_own(layer, tensors);
    Layer& state = *layers_[layer];
    workers_.run(state.units.size() + active_.size(), [&](std::size_t task) {
      if (task < state.units.size())
        attend_unit(state, state.units[task], tensors, attended);
      else if (const std::size_t row = task - state.units.size(); streams_[active_[row]].reference)
        attend_all(state, row, tensors, attended);
    });
  }

  void keep_own(std::uint32_t layer, const model::cpu::StepTensors& tensors) {
    const std::size_t dim = config_.head_dim, step = position_ - first_fed_;
    for (std::size_t row = 0; row < active_.size(); ++row) {
      OwnRows& own = streams_[active_[row]].own[layer];
      for (std::size_t head = 0; head < config_.n_kv_heads; ++head) {
        const std::size_t at = (head * steps() + step) * dim;
        std::copy_n(tensors.keys(row, head, 1).data, dim, own.keys.data() + at);
        std::copy_n(tensors.values(row, head, 1).data, dim, own.values.data() + at);
      }
    }
  }

  /// Where one lane's key and value of a position lie for a stream.
  SlotRow slot_row(const Layer& state, std::size_t stream, std::size_t lane, Position position) const {
    const auto at = static_cast<std::size_t>(position);
    const std::int32_t window = config_.layer_window[state.tensors.group().layer];
    if (window >= 0 && at + static_cast<std::size_t>(window) <= position_) return {};
    if (at < first_fed_)
      return {state.tensors.keys(lane).row(at).data(), state.tensors.values(lane).row(at).data()};
    const OwnRows& own = streams_[stream].own[state.tensors.group().layer];
    const std::size_t offset = (lane * steps() + at - first_fed_) * config_.head_dim;
    return {own.keys.data() + offset, own.values.data() + offset};
  }

  /// One lane of one stream: its queries attend the positions.
  void attend_lane(const Layer& state, std::size_t row, std::size_t lane, std::span<const Position> positions,
                   const model::cpu::StepTensors& tensors, std::span<float> attended, SlotRows& rows) const {
    thread_local std::vector<SlotRow> slots;
    slots.clear();
    for (const Position position : positions) slots.push_back(slot_row(state, active_[row], lane, position));
    const std::size_t group = config_.n_heads / config_.n_kv_heads, dim = config_.head_dim;
    rows.attend(sequence_.model().attn_scale, tensors.queries(row, lane * group, group), slots, dim,
                attended.data() + (row * config_.n_heads + lane * group) * dim);
  }

  void attend_all(const Layer& state, std::size_t row, const model::cpu::StepTensors& tensors,
                  std::span<float> attended) const {
    thread_local SlotRows rows;
    std::vector<Position> all(position_ + 1);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Position>(i);
    for (std::size_t lane = 0; lane < config_.n_kv_heads; ++lane)
      attend_lane(state, row, lane, all, tensors, attended, rows);
  }

  void attend_unit(const Layer& state, ReplayUnit& unit, const model::cpu::StepTensors& tensors,
                   std::span<float> attended) const {
    thread_local SlotRows rows;
    thread_local std::vector<float> weights;
    thread_local std::vector<double> mass;
    const std::size_t group = config_.n_heads / config_.n_kv_heads;
    const std::size_t first = unit.first_lane(), n = unit.n_lanes();
    for (Cache& cache : unit.caches()) {
      const std::size_t row = row_of_stream_[cache.cell];
      if (row == kInactive) continue;
      const Token token{static_cast<Position>(position_), tensors.keys(row, first, n),
                        tensors.values(row, first, n), tensors.queries(row, first * group, n * group),
                        class_at(position_, fed_[row])};
      const bool again = position_ < prompt_;
      if (again)
        unit.driver().ask_again(cache, token.position);
      else
        unit.driver().admit(cache, token, static_cast<std::uint32_t>(position_ + 1 - prompt_));
      const std::size_t slots = cache.attended.size();
      weights.resize(n * group * slots);
      mass.resize(n * group);
      for (std::size_t lane = first; lane < first + n; ++lane) {
        attend_lane(state, row, lane, cache.attended, tensors, attended, rows);
        for (std::size_t g = 0; g < group; ++g) {
          const std::span<const float> from = rows.weights().row(g);
          const std::size_t head = (lane - first) * group + g;
          std::copy(from.begin(), from.end(), weights.begin() + static_cast<std::ptrdiff_t>(head * slots));
          mass[head] = 0;
          for (const float weight : from) mass[head] += static_cast<double>(weight);
        }
      }
      if (again || !cache.decoder) continue;
      SlotAttention to_slots;
      if (unit.driver().needs_rows()) to_slots = {{weights.data(), n * group, slots, slots}, mass};
      unit.driver().attended(cache, token, to_slots);
    }
  }

  void count_residents() {
    if ((position_ - first_fed_) % kBlock == kBlock - 1)
      for_each_cache([](ReplayUnit&, Cache& cache) { cache.residents.begin_block(); });
    for (const std::size_t stream : active_)
      streams_[stream].out.resident.push_back(
          streams_[stream].reference ? static_cast<std::uint64_t>(lanes()) * (position_ + 1) : 0);
    for_each_cache([&](ReplayUnit& unit, Cache& cache) {
      if (!streams_[cache.cell].done)
        streams_[cache.cell].out.resident.back() += cache.residents.slots().size() * unit.n_lanes();
    });
  }

  /// The tokens that follow the latest step.
  void predict() {
    const std::vector<float> logits = batch_.logits();
    const std::size_t vocabulary = config_.vocab_size, k = position_ + 1 - tokens_.size();
    const auto of_row = [&](std::size_t row) {
      return std::span(logits).subspan(row * vocabulary, vocabulary);
    };
    for (const float logit : logits)
      if (!std::isfinite(logit))
        input_error(
            "the logits after token " + std::to_string(position_) + " are not finite", "model",
            "The checkpoint holds NaN or infinite weights, or is not the model config.json describes.");
    std::size_t reference = 0;
    std::int32_t forced = -1;
    for (std::size_t row = 0; row < active_.size(); ++row) {
      Stream& stream = streams_[active_[row]];
      const bool teacher = stream.mode == LoopMode::teacher;
      std::int32_t token = model::choose_token(of_row(row), {}, 0);
      if (stream.reference) {
        stream.out.margins.push_back(margin(of_row(row)));
        if (teacher) {
          if (!asked_.answer.empty()) token = asked_.answer[k];
          reference = row;
          forced = token;
        }
      } else if (teacher) {
        token = forced;
        stream.out.measures.push_back(measure_token(of_row(reference), of_row(row), token));
      }
      stream.out.tokens.push_back(token);
      const bool given = teacher && !asked_.answer.empty();
      const std::size_t most = given ? asked_.answer.size() : asked_.max_new_tokens;
      const bool ended = !given && std::find(asked_.eos.begin(), asked_.eos.end(), token) != asked_.eos.end();
      stream.done = ended || k + 1 >= most;
    }
  }

  void note_evidence() {
    if (plan_.evidence.empty()) return;
    std::vector<std::vector<std::uint64_t>> lanes_with(streams_.size());
    for (std::size_t s = 0; s < streams_.size(); ++s) lanes_with[s].resize(plan_.evidence.size());
    for_each_cache([&](ReplayUnit& unit, Cache& cache) {
      for (std::size_t i = 0; i < plan_.evidence.size(); ++i)
        if (cache.residents.contains(plan_.evidence[i])) lanes_with[cache.cell][i] += unit.n_lanes();
    });
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].reference) continue;
      double held = 0, nowhere = 0;
      for (const std::uint64_t n : lanes_with[s]) {
        held += static_cast<double>(n) / lanes();
        nowhere += n == 0 ? 1 : 0;
      }
      const auto count = static_cast<double>(plan_.evidence.size());
      streams_[s].out.evidence_held = held / count;
      streams_[s].out.evidence_nowhere = nowhere / count;
    }
  }

  void note_decisions() {
    for (Stream& stream : streams_)
      if (!stream.reference)
        stream.out.resident_intervals.resize(std::size_t{config_.n_layers} * config_.n_kv_heads);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (ReplayUnit& unit : layers_[layer]->units)
        for (const Cache& cache : unit.caches()) {
          StreamOutcome& out = streams_[cache.cell].out;
          // Steps count from the cut: the last one fed, and one more to end open intervals.
          const std::size_t end = first_fed_ + out.resident.size() + 1 - prompt_;
          for (std::size_t lane = unit.first_lane(); unit.covers(lane); ++lane)
            out.resident_intervals[layer * config_.n_kv_heads + lane] =
                cache.residents.history(static_cast<std::uint32_t>(end));
        }
  }

  LoopOutcome outcome() {
    note_evidence();
    for_each_cache([&](ReplayUnit& unit, Cache& cache) {
      streams_[cache.cell].out.held_tokens +=
          static_cast<double>(cache.residents.slots().size() * unit.n_lanes()) / lanes();
    });
    if (asked_.decisions) note_decisions();
    out_.prompt = prompt_;
    out_.fed = tokens_.size() - first_fed_;
    out_.cut = sequence_.cut().text();
    for (Stream& stream : streams_) {
      if (stream.reference)
        out_.references.push_back(std::move(stream.out));
      else
        out_.cells[cell_of_request_[stream.cell]].modes.push_back(std::move(stream.out));
    }
    return std::move(out_);
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
  const std::size_t prompt_, first_fed_, length_;
  model::cpu::StepBatch batch_;
  Request request_;                           // the cells that a running model can serve
  std::vector<std::size_t> cell_of_request_;  // their numbers in what was asked
  Plan plan_;
  std::deque<Stream> streams_;  // by mode: the reference, then the cells
  std::vector<std::unique_ptr<Layer>> layers_;
  LoopOutcome out_;
  // Of the present step.
  std::size_t position_ = 0;
  std::vector<std::size_t> active_, row_of_stream_;  // streams by row, rows by stream
  std::vector<std::int32_t> fed_;                    // by row
};

}  // namespace

const char* loop_mode_name(LoopMode mode) {
  return mode == LoopMode::teacher ? "teacher" : "greedy";
}

LoopOutcome closed_loop(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
                        const model::ModelConfig& config, const model::Weights& weights,
                        const LoopRequest& request, Progress& progress) {
  if (request.modes.empty()) bug("a closed loop without a mode");
  if (tokens.size() != sequence.length() || sequence.recorded_prompt_length() != sequence.length())
    bug("the closed loop takes a prompt that nothing follows");
  if (most_new_tokens(request) == 0)
    usage_error("must be at least 1", "--max-new-tokens", "An answer has at least one token.");
  return ClosedLoop(sequence, tokens, config, weights, request, progress).run();
}

std::uint64_t estimate_loop_bytes(const trace::Sequence& sequence, const model::ModelConfig& config,
                                  const LoopRequest& request) {
  const std::uint64_t steps = sequence.measured_length() + most_new_tokens(request);
  const std::uint64_t streams = request.modes.size() * (request.cells.size() + 1);
  const std::uint64_t token = 2ULL * config.n_layers * config.n_kv_heads * config.head_dim;
  return (streams * (steps * token + config.vocab_size + 8ULL * config.hidden_size) +
          sequence.length() * token) *
         sizeof(float);
}

}  // namespace kvsim::sim
