#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/loop/loop_run.hpp"
#include "traces/model/sampling.hpp"

namespace kvsim::sim {

void LoopRun::begin_step() {
  active_.clear();
  rows_.clear();
  row_of_stream_.assign(streams_.size(), kInactive);
}

void LoopRun::add_to_step(std::size_t stream, std::span<const std::int32_t> tokens, std::size_t position) {
  row_of_stream_[stream] = rows_.size();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    active_.push_back(stream);
    rows_.push_back({tokens[i], position + i});
  }
}

bool LoopRun::step(std::size_t position) {
  progress_.check();
  position_ = position;
  begin_step();
  const std::size_t at = position - first_fed_;
  for (std::size_t stream = 0; stream < streams_.size(); ++stream)
    if (!streams_[stream].done)
      add_to_step(stream, std::span(streams_[stream].text).subspan(at, 1), position);
  teaching_.clear();
  drifting_.clear();
  for (std::size_t row = 0; row < active_.size(); ++row) {
    Stream& stream = streams_[active_[row]];
    if (stream.mode != LoopMode::teacher || !stream.predicts_after(at + 1)) continue;
    if (stream.is_reference) {
      stream.predicted[at + 1] = {};
      teaching_.push_back(row);
    } else {
      stream.drift.resize(config_.n_layers);
      drifting_.push_back(row);
    }
  }
  const auto append = [](std::span<const float> numbers, std::vector<float>& to) {
    to.insert(to.end(), numbers.begin(), numbers.end());
  };
  batch_.forward(
      rows_,
      [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
        attend(layer, tensors, attended);
        const std::size_t heads = config_.n_heads, dim = config_.head_dim;
        for (const std::size_t row : teaching_)
          for (std::size_t head = 0; head < heads; ++head)
            append(tensors.queries(row, head, 1).row(0), streams_[active_[row]].predicted[at + 1].queries);
        for (const std::size_t row : drifting_)
          streams_[active_[row]].drift[layer].add_queries(
              {taught(row).queries.data() + layer * heads * dim, heads, dim, dim},
              tensors.queries(row, 0, heads));
      },
      [&](std::uint32_t layer, std::span<const float> hidden) {
        const std::size_t width = config_.hidden_size;
        for (const std::size_t row : teaching_)
          append(hidden.subspan(row * width, width), streams_[active_[row]].predicted[at + 1].hidden);
        for (const std::size_t row : drifting_)
          streams_[active_[row]].drift[layer].add_residual(
              std::span(taught(row).hidden).subspan(layer * width, width),
              hidden.subspan(row * width, width));
      });
  store_pairs();
  if (is_again(position)) note_stored();
  if (at % kBlock == kBlock - 1)
    for_each_cache([](LoopUnit&, Cache& cache) { cache.residents.begin_block(); });
  count_residents();
  predict();
  return std::any_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return !stream.done; });
}

void LoopRun::note_stored() {
  for_each_cache([&](LoopUnit&, Cache& cache) {
    const Stream& stream = streams_[cache.cell];
    if (cache.stored && stream.mode == asked_.modes.front() && stream.script.front().turn == 0)
      outcome_of(stream.cell).kept_bits += cache.stored->ledger().bits();
  });
}

void LoopRun::store_pairs() {
  for (std::size_t number = 0; number < layers_.size(); ++number)
    for (LoopUnit& unit : layers_[number].units)
      for (Cache& cache : unit.caches()) {
        const std::size_t row = row_of_stream_[cache.cell];
        if (!cache.stored || row == kInactive) continue;
        const Stream& stream = streams_[cache.cell];
        const std::optional<int> partner = layers_[number].represented->partner(*unit.unit, stream.cell);
        if (!partner) continue;
        const OwnRows& there = stream.own[static_cast<std::size_t>(*partner)];
        const std::size_t index = position_ - stream.first_own;
        // The last prompt token has been attended as both prompts left it; now it takes its slot anew, as it
        // has come in this layer.
        if (const OwnRows& own = stream.own[number]; is_again(position_))
          cache.stored->join({&cache.own_slot, 1}, {static_cast<Position>(position_),
                                                    own.keys.of_heads(unit.first_lane, unit.n_lanes, index),
                                                    own.values.of_heads(unit.first_lane, unit.n_lanes, index),
                                                    {}});
        cache.stored->pair(cache.own_slot, there.keys.of_heads(unit.first_lane, unit.n_lanes, index),
                           there.values.of_heads(unit.first_lane, unit.n_lanes, index));
      }
}

void LoopRun::require_finite(std::span<const float> logits, std::size_t position) const {
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }))
    input_error("the logits after token " + std::to_string(position) + " are not finite", "model",
                "The checkpoint holds NaN or infinite weights, or is not the model config.json describes.");
}

void LoopRun::predict() {
  const std::size_t fed = position_ + 1 - first_fed_, vocabulary = config_.vocab_size;
  predicting_.clear();
  for (std::size_t row = 0; row < active_.size(); ++row)
    if (const Stream& stream = streams_[active_[row]];
        stream.predicts_after(fed) || (ranks_surprises(stream) && fed < stream.text.size()))
      predicting_.push_back(row);
  if (predicting_.empty()) return;
  const std::vector<float> logits = batch_.logits(predicting_);
  require_finite(logits, position_);
  std::vector<std::size_t> ended;
  for (std::size_t i = 0; i < predicting_.size(); ++i) {
    const std::size_t number = active_[predicting_[i]];
    Stream& stream = streams_[number];
    const auto of = std::span(logits).subspan(i * vocabulary, vocabulary);
    if (stream.predicts_after(fed) && take(stream, of)) ended.push_back(number);
    if (!ranks_surprises(stream)) continue;
    stream.surprises.resize(fed + 1, std::numeric_limits<float>::quiet_NaN());
    stream.surprises[fed] = -model::LogProbabilities(of).of(stream.text[fed]);
  }
  for (const std::size_t stream : ended) end_turn(stream);
  if (kept_references() != nullptr) return;
  for (const std::size_t row : teaching_) streams_[active_[row]].predicted.clear();
}

bool LoopRun::take(Stream& stream, std::span<const float> logits) {
  const bool teacher = stream.mode == LoopMode::teacher;
  const bool forced = feeds_answer(asked_, stream.mode, stream.turn());
  const std::size_t k = stream.out().tokens.size(), fed = stream.text.size();
  std::int32_t token = model::choose_token(logits, {}, 0);
  if (forced) token = asked_.turns[stream.turn()].answer[k];
  if (stream.is_reference) {
    stream.out().margins.push_back(margin(logits));
    if (teacher) stream.predicted[fed].logits.assign(logits.begin(), logits.end());
  } else if (teacher) {
    const Stream& reference = streams_[stream.reference];
    token = reference.text[fed];
    stream.out().measures.push_back(measure_token(reference.predicted.at(fed).logits, logits, token));
  }
  const bool eos = !forced && std::find(asked_.eos.begin(), asked_.eos.end(), token) != asked_.eos.end();
  return stream.take(token, eos || k + 1 == most_answer_tokens(asked_, stream.mode, stream.turn()));
}

}  // namespace kvsim::sim
