#include <algorithm>

#include "sim/loop/loop_run.hpp"
#include "sim/replay/idle_parts.hpp"

namespace kvsim::sim {

void LoopRun::process_prompts() {
  begin_chunks();
  in_prompt_ = true;
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
        add_to_step(stream, tokens_.subspan(first, block_), first);
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

void LoopRun::note_chunk_peaks() {
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

void LoopRun::forget_ended() {
  for (Layer& layer : layers_)
    for (LoopUnit& unit : layer.units)
      for (Cache& cache : unit.caches()) cache.residents.forget_ended();
}

void LoopRun::begin_chunks() {
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

void LoopRun::cut_chunks(std::size_t end, bool last) {
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

void LoopRun::end_prompt() {
  std::vector<std::vector<IdleLane>> ends(request_.cells.size());
  for (std::uint32_t number = 0; number < layers_.size(); ++number)
    for (LoopUnit& unit : layers_[number].units)
      for (Cache& cache : unit.caches()) {
        cache.left_behind = 0;
        const Stream& stream = streams_[cache.cell];
        if (stream.mode == asked_.modes.front() && stream.script.front().turn == 0)
          outcome_of(stream.cell).kept_tokens +=
              static_cast<double>(cache.residents.slots().size() * unit.n_lanes) / lanes();
        if (unit.text.empty())
          ends[stream.cell].push_back({kept_ends(
              cache.residents.slots(), prompt_ - held_tokens(sequence_.model(), number, prompt_), prompt_)});
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

}  // namespace kvsim::sim
