#include <algorithm>
#include <numeric>

#include "sim/loop/loop_run.hpp"

namespace kvsim::sim {

LoopRun::Scratch& LoopRun::scratch() {
  thread_local Scratch own;
  return own;
}

void LoopRun::attend(std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
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
  const AtLayer at{layer, tensors, attended};
  workers_.run(state.units.size() + rows_.size() + chunked_.size(), [&](std::size_t task) {
    if (task < state.units.size()) return attend_unit(at, state.units[task]);
    task -= state.units.size();
    if (task >= rows_.size())
      attend_chunk(at, chunked_[task - rows_.size()]);
    else if (streams_[active_[task]].is_reference)
      attend_all(at, task);
  });
}

void LoopRun::keep_own(std::uint32_t layer, const StepTensors& tensors) {
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    Stream& stream = streams_[active_[row]];
    OwnRows& own = stream.own[layer];
    const std::size_t index = rows_[row].position - stream.first_own;
    own.keys.set(index, tensors.keys(row, 0, config_.n_kv_heads));
    own.values.set(index, tensors.values(row, 0, config_.n_kv_heads));
    if ((stream.prefill == Prefill::chunked && in_prompt_) || stream.verifies() || drafts_apart())
      own.queries.set(index, tensors.queries(row, 0, config_.n_heads));
  }
}

SlotRow LoopRun::LaneText::row(Position position) const {
  const auto at = static_cast<std::size_t>(position);
  if (at < first_seen) return {};
  if (at < first_own) return {keys.row(at).data(), values.row(at).data()};
  return {own.keys.row(lane, at - first_own), own.values.row(lane, at - first_own)};
}

LoopRun::LaneText LoopRun::lane_text(const Stream& stream, std::size_t layer, std::size_t lane,
                                     std::size_t first_seen) const {
  const GroupTensors& tensors = *layers_[layer].tensors;
  return {tensors.keys(lane), tensors.values(lane), stream.own[layer], lane, stream.first_own, first_seen};
}

LoopRun::LaneText LoopRun::seen_text(std::uint32_t layer, std::size_t row, std::size_t lane) const {
  return lane_text(streams_[active_[row]], layer, lane,
                   sequence_.model().first_seen(layer, rows_[row].position));
}

void LoopRun::stored_slots(std::uint32_t layer, std::size_t row, std::size_t first_lane, std::size_t lane,
                           const Cache& cache) const {
  const policy::CacheRows& stored = cache.stored->rows();
  const std::size_t own = lane - first_lane;
  Scratch& room = scratch();
  const LaneText text = seen_text(layer, row, lane);
  room.slots.resize(room.positions.size());
  for (std::size_t slot = 0; slot < room.positions.size(); ++slot) {
    SlotRow& at = room.slots[slot] = text.row(room.positions[slot]);
    // A token that is attended beside the slots is read as it comes.
    if (at.key == nullptr || slot == stored.slots()) continue;
    at = {stored.keys(own).row(slot).data(), stored.values(own).row(slot).data(), stored.biases(own)[slot]};
  }
  if (stored.has_rest(own))
    room.slots.push_back({stored.rest_key(own).data(), stored.rest_value(own).data(), stored.rest_bias(own)});
}

void LoopRun::text_slots(std::uint32_t layer, std::size_t row, std::size_t lane,
                         std::span<const Position> positions) const {
  const std::size_t dim = config_.head_dim;
  Scratch& room = scratch();
  const LaneText text = seen_text(layer, row, lane);
  room.slots.resize(positions.size());
  room.rotated.resize(room.shifts.size() * dim);
  for (std::size_t slot = 0; slot < positions.size(); ++slot) {
    SlotRow& at = room.slots[slot] = text.row(positions[slot]);
    if (room.shifts.empty() || room.shifts[slot] == 0 || at.key == nullptr) continue;
    float* to = room.rotated.data() + slot * dim;
    rotation_of(layer).rotate({at.key, dim}, room.shifts[slot], to);
    at.key = to;
  }
}

void LoopRun::attend_slots(const AtLayer& at, std::size_t row, std::size_t head, std::size_t n,
                           std::span<const SlotRow> slots) const {
  const std::size_t dim = config_.value_dim();
  const trace::Model& model = sequence_.model();
  std::span<const float> sinks = model.sinks;
  if (!sinks.empty()) sinks = sinks.subspan(std::size_t{at.layer} * config_.n_heads + head, n);
  scratch().rows.attend({model.attn_scale, -1, model.logit_softcap}, at.tensors.queries(row, head, n), slots,
                        dim, at.attended.data() + (row * config_.n_heads + head) * dim, sinks);
}

void LoopRun::attend_lane(const AtLayer& at, std::size_t row, std::size_t lane,
                          std::span<const Position> positions) const {
  const std::size_t group = config_.n_heads / config_.n_kv_heads;
  text_slots(at.layer, row, lane, positions);
  attend_slots(at, row, lane * group, group, scratch().slots);
}

void LoopRun::attend_all(const AtLayer& at, std::size_t row) const {
  std::vector<Position> all(rows_[row].position + 1);
  std::iota(all.begin(), all.end(), Position{0});
  scratch().shifts.clear();
  for (std::size_t lane = 0; lane < config_.n_kv_heads; ++lane) attend_lane(at, row, lane, all);
}

void LoopRun::attend_chunk(const AtLayer& at, const ChunkedStream& chunked) const {
  for (std::size_t i = 0; i < chunked.per_layer; ++i) {
    const ChunkedUnit& unit = chunked.units[at.layer * chunked.per_layer + i];
    for (std::size_t token = 0; token < block_; ++token) {
      // What was left, and the chunk up to the token itself.
      const std::span<const Position> seen =
          std::span(unit.residents).first(unit.residents.size() - block_ + token + 1);
      find_shifts(seen, unit.shifts);
      for (std::size_t lane = unit.first_lane; lane < unit.first_lane + unit.n_lanes; ++lane)
        attend_lane(at, row_of_stream_[chunked.stream] + token, lane, seen);
    }
  }
}

void LoopRun::order_slots(std::uint32_t layer, std::span<const Position> positions) const {
  std::vector<std::size_t>& order = scratch().order;
  order.clear();
  if (config_.layer_window[layer] < 0 || std::ranges::is_sorted(positions)) return;
  order.resize(positions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t slot) { return positions[slot]; });
}

void LoopRun::find_shifts(std::span<const Position> positions, std::span<const std::uint32_t> once) const {
  std::vector<std::uint32_t>& shifts = scratch().shifts;
  shifts.clear();
  if (asked_.positions == LoopPositions::cache_step) dropped_between(positions, shifts);
  if (asked_.positions != LoopPositions::cache_once) return;
  for (const Position position : positions) {
    const auto at = static_cast<std::size_t>(position);
    shifts.push_back(at < once.size() ? once[at] : 0);
  }
}

void LoopRun::attend_unit(const AtLayer& at, LoopUnit& unit) const {
  for (std::size_t i = 0; i < unit.caches().size(); ++i)
    if (const std::size_t first = row_of_stream_[unit.caches()[i].cell]; first != kInactive)
      for (std::size_t row = first; row < rows_.size() && active_[row] == active_[first]; ++row)
        attend_cache(at, unit, i, row);
}

void LoopRun::attend_cache(const AtLayer& at, LoopUnit& unit, std::size_t number, std::size_t row) const {
  auto& [rows, slot_rows, read_rows, rotated, weights, mass, positions, shifts, lanes, order, columns,
         ordered] = scratch();
  Cache& cache = unit.caches()[number];
  UnitDriver<IndexStore>& driver = unit.unit->driver();
  const std::size_t group = config_.n_heads / config_.n_kv_heads;
  const std::size_t first = unit.first_lane, n = unit.n_lanes, position = rows_[row].position;
  const Token token{
      unit.policy_position(position, prompt_), at.tensors.keys(row, first, n),
      at.tensors.values(row, first, n),        at.tensors.queries(row, first * group, n * group),
      class_at(position, rows_[row].token),    surprise_of(streams_[active_[row]], position - first_fed_)};
  const bool again = is_again(position);
  if (again) {
    driver.ask_again(cache, token);
    begin_parts(at.layer, unit, cache, token);
  } else {
    driver.admit(cache, token, in_prompt_ ? 0 : static_cast<std::uint32_t>(position + 1 - prompt_));
  }
  positions.assign(cache.attended.begin(), cache.attended.end());
  if (!unit.text.empty())
    for (Position& held : positions) held = unit.text_position(held, prompt_);
  find_shifts(positions, unit.shifts.empty() ? std::span<const std::uint32_t>{} : unit.shifts[number]);
  const std::size_t slots = positions.size();
  order_slots(at.layer, positions);
  if (cache.reads) choose(at.layer, unit, cache, row, token);
  // What the full cache has attended is not attended anew, unless somebody learns from it.
  const bool observed = driver.needs_rows() || (cache.stored && cache.stored->observes());
  if (refeeding_ && (again || !observed)) {
    if (!again && cache.decoder) driver.attended(cache, token, {});
    if (!again && cache.stored) cache.stored->settle(cache.own_slot, {});
    return;
  }
  weights.resize(n * group * slots);
  mass.resize(n * group);
  for (std::size_t lane = first; lane < first + n; ++lane) {
    if (cache.stored)
      stored_slots(at.layer, row, first, lane, cache);
    else
      text_slots(at.layer, row, lane, positions);
    if (!order.empty()) {
      ordered.clear();
      for (const std::size_t slot : order) ordered.push_back(slot_rows[slot]);
      ordered.insert(ordered.end(), slot_rows.begin() + static_cast<std::ptrdiff_t>(slots), slot_rows.end());
    }
    if (!cache.reads) attend_slots(at, row, lane * group, group, order.empty() ? slot_rows : ordered);
    for (std::size_t g = 0; g < group && (observed || cache.reads); ++g) {
      const std::size_t head = (lane - first) * group + g;
      const std::span<float> to = std::span(weights).subspan(head * slots, slots);
      if (cache.reads) {
        std::ranges::fill(to, 0.0F);
        read_rows.clear();
        columns.assign(cache.reads->of(head).begin(), cache.reads->of(head).end());
        if (!order.empty())
          std::ranges::sort(columns, {}, [&held = positions](std::size_t column) { return held[column]; });
        for (const std::size_t column : columns) read_rows.push_back(slot_rows[column]);
        // A row for the rest, behind the slots, is always read.
        if (slot_rows.size() > slots) read_rows.push_back(slot_rows.back());
        attend_slots(at, row, lane * group + g, 1, read_rows);
        for (std::size_t i = 0; i < columns.size(); ++i) to[columns[i]] = rows.weights()(0, i);
      } else if (order.empty()) {
        std::ranges::copy(rows.weights().row(g).first(slots), to.begin());
      } else {
        for (std::size_t i = 0; i < slots; ++i) to[order[i]] = rows.weights()(g, i);
      }
      mass[head] = static_cast<double>(rows.sink_weight(cache.reads ? 0 : g));
      for (const float weight : to) mass[head] += static_cast<double>(weight);
    }
  }
  SlotAttention to_slots;
  if (driver.needs_rows()) to_slots = {{weights.data(), n * group, slots, slots}, mass};
  if (!again && cache.decoder) driver.attended(cache, token, to_slots);
  if (!again && cache.stored) cache.stored->settle(cache.own_slot, {weights.data(), n * group, slots, slots});
  if (!in_prompt_) return;
  for (Cache& other : unit.caches()) {
    if (other.cell == cache.cell || streams_[other.cell].leader != cache.cell) continue;
    driver.admit(other, token, 0);
    if (other.decoder) driver.attended(other, token, to_slots);
  }
}

void LoopRun::begin_parts(std::uint32_t layer, const LoopUnit& unit, Cache& cache, const Token& token) const {
  if (streams_[cache.cell].prefill != Prefill::dense) return;
  const Layer& state = layers_[layer];
  const std::size_t cell = streams_[cache.cell].cell;
  const bool together = state.represented->partner(*unit.unit, cell).has_value();
  state.represented->store(*unit.unit, cache, cell, together ? nullptr : &token);
  with_tokens(layer, unit, cache, [&](const policy::StoredTokens& tokens) {
    state.selected->begin(*unit.unit, cache, cell, &tokens);
  });
}

template <class Use>
void LoopRun::with_tokens(std::uint32_t layer, const LoopUnit& unit, const Cache& cache, Use use) const {
  if (cache.stored) return use(policy::StoredTokens(cache.stored->rows()));
  const Stream& stream = streams_[cache.cell];
  const std::size_t from = leader_of(layer, unit, stream).value_or(layer);
  std::vector<policy::LaneRows>& lanes = scratch().lanes;
  lanes.clear();
  for (std::size_t lane = unit.first_lane; lane < unit.first_lane + unit.n_lanes; ++lane)
    lanes.push_back({layers_[from].tensors->keys(lane), layers_[from].tensors->values(lane),
                     stream.own[from].keys.of(lane), stream.own[from].values.of(lane)});
  use(policy::StoredTokens(cache.residents.slots(), lanes, static_cast<Position>(stream.first_own)));
}

std::optional<int> LoopRun::leader_of(std::uint32_t layer, const LoopUnit& unit, const Stream& stream) const {
  return layers_[layer].selected->leader(*unit.unit, stream.cell);
}

void LoopRun::choose(std::uint32_t layer, const LoopUnit& unit, Cache& cache, std::size_t row,
                     const Token& token) const {
  const std::optional<int> leader = leader_of(layer, unit, streams_[cache.cell]);
  const std::size_t group = config_.n_heads / config_.n_kv_heads, dim = config_.head_dim;
  policy::Asking asking{.position = token.position,
                        .own_slot = cache.slot_of_own(),
                        .queries = token.queries,
                        .scale = sequence_.model().attn_scale,
                        .cap = sequence_.model().logit_softcap};
  if (leader)
    asking.queries = {layers_[static_cast<std::size_t>(*leader)].queries.data() +
                          (row * config_.n_heads + unit.first_lane * group) * dim,
                      unit.n_lanes * group, dim, dim};
  with_tokens(layer, unit, cache,
              [&](const policy::StoredTokens& tokens) { cache.reads->select(asking, tokens); });
}

std::uint8_t LoopRun::class_at(std::size_t position, std::int32_t id) const {
  if (position < tokens_.size() && tokens_[position] == id) return class_of_flags(sequence_.flags(position));
  return asked_.token_flags ? class_of_flags(asked_.token_flags(id)) : std::uint8_t{0};
}

}  // namespace kvsim::sim
