#include <algorithm>

#include "sim/loop/loop_run.hpp"
#include "sim/replay/idle_parts.hpp"

namespace kvsim::sim {

void LoopRun::count_residents() {
  for (std::size_t row = 0; row < active_.size(); ++row) {
    const std::size_t stream = active_[row];
    if (row + 1 < active_.size() && active_[row + 1] == stream) continue;  // its last row counts
    StreamOutcome& out = streams_[stream].out();
    if (out.resident.empty() && streams_[stream].is_reference)
      out.seen = static_cast<std::uint64_t>(lanes()) * (position_ + 1);
    out.resident.push_back(streams_[stream].is_reference ? whole_tokens(position_ + 1) : 0);
  }
  for_each_cache([&](LoopUnit& unit, Cache& cache) {
    if (row_of_stream_[cache.cell] == kInactive) return;
    StreamOutcome& out = streams_[cache.cell].out();
    out.resident.back() += cache.residents.slots().size() * unit.n_lanes;
    if (cache.reads) add_reads(unit, *cache.reads, out);
    if (!cache.stored) return;
    out.stored_bits.resize(out.resident.size());
    out.stored_bits.back() += cache.stored->ledger().bits();
  });
}

std::uint64_t LoopRun::whole_tokens(std::size_t n) const {
  std::uint64_t tokens = 0;
  for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer)
    tokens += held_tokens(sequence_.model(), layer, n) * config_.n_kv_heads;
  return tokens;
}

void LoopRun::add_reads(const LoopUnit& unit, const SelectedReads& reads, StreamOutcome& out) const {
  const std::size_t group = config_.n_heads / config_.n_kv_heads;
  out.reads.resize(out.resident.size());
  StepReads& step = out.reads.back();
  for (std::size_t head = 0; head < unit.n_lanes * group; ++head)
    step.read_tokens += static_cast<double>(reads.of(head).size()) / static_cast<double>(group);
  for (std::size_t lane = 0; lane < unit.n_lanes; ++lane) step.loaded_tokens += reads.lane_tokens(lane);
  step.index_bits_read += reads.index_bits_read();
  step.index_bits += reads.index_bits();
}

void LoopRun::end_turn(std::size_t number) {
  Stream& stream = streams_[number];
  if (!stream.is_reference) note_caches(number);
  stream.end_turn();
}

void LoopRun::note_caches(std::size_t number) {
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
        out.left_behind += cache.left_behind * unit.n_lanes;
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

bool LoopRun::holds_as_it_came(std::size_t layer, const LoopUnit& unit, const Cache& cache) const {
  for (std::size_t lane = 0; lane < unit.n_lanes; ++lane) {
    const LaneText text = lane_text(streams_[cache.cell], layer, unit.first_lane + lane);
    if (!is_unchanged(
            cache.stored->rows(), lane,
            [&](Position at) { return std::span(text.row(at).key, config_.head_dim); },
            [&](Position at) { return std::span(text.row(at).value, config_.value_dim()); }))
      return false;
  }
  return true;
}

void LoopRun::note_idle(Stream& stream, bool unchanged) {
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

std::vector<LoopOutcome> LoopRun::outcomes() {
  first_.prompt = prompt_;
  first_.cut = sequence_.cut().text();
  for (std::size_t cell = 0; cell < request_.cells.size(); ++cell)
    if (prefill_of(cell) != Prefill::dense) outcome_of(cell).first_reference = first_reference_of_own_;
  for (std::size_t i = 0; i < drafts_.size(); ++i) {
    const Stream& stream = streams_[drafts_[i].stream];
    if (stream.script.front().turn == 0) outcome_of(stream.cell).first_reference = i;
  }
  for (std::size_t turn = 0; turn < outcomes_.size(); ++turn) {
    outcomes_[turn] = first_;
    outcomes_[turn].fed = turn == 0 ? tokens_.size() - first_fed_ : asked_.turns[turn].question.size();
  }
  // References of streams that process the prompt themselves come after the others, mode by mode.
  const auto take = [&](std::deque<Stream>& streams) {
    for (const bool own : {false, true})
      for (Stream& stream : streams)
        for (std::size_t i = 0; processes_prompt(stream) == own && i < stream.script.size(); ++i) {
          LoopOutcome& outcome = outcomes_[stream.script[i].turn];
          std::vector<StreamOutcome>& to =
              stream.is_reference ? outcome.references : outcome.cells[cell_of_request_[stream.cell]].modes;
          to.push_back(std::move(stream.turns[i]));
        }
  };
  take(streams_);
  if (drafts_apart()) take(verifier_->streams_);
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

}  // namespace kvsim::sim
