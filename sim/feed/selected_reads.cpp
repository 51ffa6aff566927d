#include "sim/feed/selected_reads.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/base/error.hpp"

namespace kvsim::sim {

using policy::Position;

void SelectedReads::joined(std::span<const std::size_t> victims, std::size_t own_slot, std::size_t slots) {
  own_slot_ = own_slot;
  moved_from_ = slots;
  for (std::size_t i = 1; i < victims.size(); ++i) moved_from_ = std::min(moved_from_, victims[i]);
  pending_ = true;
}

void SelectedReads::select(const policy::Asking& asking, const policy::StoredTokens& tokens) {
  if (pending_) selector_->joined(own_slot_, moved_from_, tokens);
  pending_ = false;
  reads_.begin(n_lanes_ * group_);
  selector_->select(asking, tokens, reads_);
  const std::size_t own = asking.own_slot.value_or(tokens.slots());
  for (std::size_t head = 0; head < reads_.heads(); ++head)
    check(reads_.of(head), own, tokens.slots() + (asking.own_slot ? 0 : 1));
  count(asking, tokens);
}

void SelectedReads::check(std::vector<std::size_t>& columns, std::size_t own, std::size_t n_columns) const {
  std::sort(columns.begin(), columns.end());
  const auto at = std::lower_bound(columns.begin(), columns.end(), own);
  if (at == columns.end() || *at != own) columns.insert(at, own);
  if (columns.back() >= n_columns)
    bug("reads slot " + std::to_string(columns.back()) + " of " + std::to_string(n_columns), name_);
  if (std::adjacent_find(columns.begin(), columns.end()) != columns.end()) bug("reads a slot twice", name_);
}

void SelectedReads::count(const policy::Asking& asking, const policy::StoredTokens& tokens) {
  ++steps_;
  const auto position_of = [&](std::size_t column) {
    return column < tokens.slots() ? tokens.positions()[column] : asking.position;
  };
  for (std::size_t l = 0; l < n_lanes_; ++l) {
    Lane& lane = lanes_[l];
    std::swap(lane.before, lane.now);
    lane.now.clear();
    is_read_.assign(tokens.slots() + 1, 0);
    for (std::size_t g = 0; g < group_; ++g)
      for (const std::size_t column : reads_.of(l * group_ + g))
        if (!std::exchange(is_read_[column], 1)) lane.now.push_back(position_of(column));
    std::sort(lane.now.begin(), lane.now.end());
    lane.hits = 0;
    for (auto a = lane.before.begin(), b = lane.now.begin(); a != lane.before.end() && b != lane.now.end();) {
      lane.hits += *a == *b ? 1 : 0;
      if (*a < *b)
        ++a;
      else
        ++b;
    }
  }
}

namespace {

/// Sets to[i] = row[slots[i]] and returns their sum. It sums in four fixed chains, so that the order of the
/// additions depends on the slots alone.
double gather(const float* row, std::span<const policy::Position> slots, float* to) {
  double sum[4] = {0, 0, 0, 0};
  std::size_t i = 0;
  for (; i + 4 <= slots.size(); i += 4)
    for (std::size_t c = 0; c < 4; ++c) sum[c] += to[i + c] = row[slots[i + c]];
  for (; i < slots.size(); ++i) sum[0] += to[i] = row[slots[i]];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace

SlotAttention SlotGather::operator()(MatrixView rows, std::span<const policy::Position> slots, bool sinks) {
  attention_.resize(rows.rows * slots.size());
  mass_.resize(rows.rows);
  for (std::size_t head = 0; head < rows.rows; ++head)
    mass_[head] = gather(rows.row(head).data(), slots, attention_.data() + head * slots.size());
  if (sinks) add_sinks(rows);
  return {{attention_.data(), rows.rows, slots.size(), slots.size()}, mass_};
}

SlotAttention SlotGather::operator()(MatrixView rows, std::span<const policy::Position> slots,
                                     const SelectedReads& reads, bool sinks) {
  attention_.assign(rows.rows * slots.size(), 0.0F);
  mass_.assign(rows.rows, 0.0);
  for (std::size_t head = 0; head < rows.rows; ++head) {
    float* to = attention_.data() + head * slots.size();
    for (const std::size_t slot : reads.of(head)) mass_[head] += to[slot] = rows.row(head)[slots[slot]];
  }
  if (sinks) add_sinks(rows);
  return {{attention_.data(), rows.rows, slots.size(), slots.size()}, mass_};
}

void SlotGather::add_sinks(MatrixView rows) {
  for (std::size_t head = 0; head < rows.rows; ++head) {
    const std::span<const float> row = rows.row(head);
    mass_[head] += std::max(0.0, 1 - std::accumulate(row.begin(), row.end(), 0.0));
  }
}

}  // namespace kvsim::sim
