#include "sim/feed/slot_attention.hpp"

#include <algorithm>
#include <numeric>

namespace kvsim::sim {
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
