#include "sim/replay/unit_driver.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::sim {
namespace {

using policy::Position;

/// to[i] = row[slots[i]]; returns their sum, in four fixed chains: the order never depends on anything but
/// the slots.
double gather(const float* row, std::span<const Position> slots, float* to) {
  double sum[4] = {0, 0, 0, 0};
  std::size_t i = 0;
  for (; i + 4 <= slots.size(); i += 4)
    for (std::size_t c = 0; c < 4; ++c) sum[c] += to[i + c] = row[slots[i + c]];
  for (; i < slots.size(); ++i) sum[0] += to[i] = row[slots[i]];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace

void UnitDriver::start(std::size_t cell, std::size_t budget, bool log) {
  const std::size_t prompt = tensors_->sequence().prompt_length(), length = tensors_->sequence().length();
  policy::Start start = eviction_->start(budget);
  const std::size_t capacity = budget + eviction_group_->eviction->overshoot();
  check_kept(start.keep, eviction_group_->streams ? 0 : std::min(capacity, prompt));
  const std::size_t most = start.decoder ? std::min(capacity, length) : start.keep.size() + (length - prompt);
  cells_.push_back(
      {cell, budget, capacity, ResidentSet(start.keep, most, length, log), std::move(start.decoder)});
}

void UnitDriver::admit(ManagedCache& cell, std::size_t position, std::uint32_t step) {
  victims_.clear();
  const auto token = static_cast<Position>(position);
  if (cell.decoder) {
    const std::span<const Position> slots = cell.residents.slots();
    const std::size_t group = tensors_->sequence().model().group();
    const bool full = slots.size() >= cell.capacity;
    cell.decoder->evict({token, slots, full, tensors_->token_keys(first_lane_, n_lanes_, position),
                         tensors_->token_queries(first_lane_ * group, n_lanes_ * group, position),
                         tensors_->token_class(position)},
                        victims_);
    check_victims(position, slots.size(), full);
  }
  cell.own_slot = cell.residents.join(victims_, token, step);
  cell.own = token;
  cell.attended = cell.residents.slots();
}

void UnitDriver::ask_again(ManagedCache& cell, std::size_t position) {
  cell.own = static_cast<Position>(position);
  cell.attended = cell.residents.slots();
  cell.held_own_at_cut = cell.residents.holds(cell.own);
  if (cell.held_own_at_cut) return;
  cell.with_own.assign(cell.attended.begin(), cell.attended.end());
  cell.with_own.push_back(cell.own);
  cell.attended = cell.with_own;
}

void UnitDriver::show(ManagedCache& cell, std::size_t position, const RowBlock& rows) {
  const std::span<const Position> slots = cell.residents.slots();
  policy::Step step;
  step.position = static_cast<Position>(position);
  step.slots = slots;
  step.own_slot = cell.own_slot;
  step.keys = tensors_->token_keys(first_lane_, n_lanes_, position);
  step.values = tensors_->token_values(first_lane_, n_lanes_, position);
  if (eviction_group_->needs.decode_rows) {
    const std::size_t group = tensors_->sequence().model().group(), heads = n_lanes_ * group;
    seen_.resize(heads * slots.size());
    mass_.resize(heads);
    for (std::size_t head = 0; head < heads; ++head) {
      const float* row = rows.row(first_lane_ + head / group, head % group, position - rows.first());
      mass_[head] = gather(row, slots, seen_.data() + head * slots.size());
    }
    step.attention = {seen_.data(), heads, slots.size(), slots.size()};
    step.mass = mass_;
  }
  cell.decoder->observe(step);
}

void UnitDriver::check_kept(const std::vector<Position>& keep, std::size_t most) const {
  if (keep.size() > most)
    bug("keeps " + std::to_string(keep.size()) + " prompt positions of at most " + std::to_string(most),
        where());
  const auto prompt = static_cast<Position>(tensors_->sequence().prompt_length());
  for (std::size_t i = 0; i < keep.size(); ++i)
    if (keep[i] < 0 || keep[i] >= prompt || (i > 0 && keep[i] <= keep[i - 1]))
      bug("kept positions must be distinct, ascending and in the prompt; entry " + std::to_string(i) +
              " is " + std::to_string(keep[i]),
          where());
}

void UnitDriver::check_victims(std::size_t position, std::size_t n_slots, bool full) {
  const auto wrong = [&](const std::string& what) {
    bug(what + " at position " + std::to_string(position), where());
  };
  if (full && victims_.empty()) wrong("nobody leaves a full cache");
  for (const std::size_t slot : victims_)
    if (slot >= n_slots) wrong("evicted slot " + std::to_string(slot) + " of " + std::to_string(n_slots));
  if (victims_.size() < 2) return;
  distinct_ = victims_;
  std::sort(distinct_.begin(), distinct_.end());
  if (std::adjacent_find(distinct_.begin(), distinct_.end()) != distinct_.end())
    wrong("a slot is evicted twice");
}

std::string UnitDriver::where() const {
  const LaneGroup group = tensors_->group();
  return "policy '" + eviction_group_->eviction->spec->name + "', layer " + std::to_string(group.layer) +
         ", KV head " + std::to_string(group.first_head + first_lane_);
}

}  // namespace kvsim::sim
