#include "sim/loop/slot_rows.hpp"

#include <algorithm>

#include "sim/base/cap_logits.hpp"
#include "traces/model/cpu/wide.hpp"

namespace kvsim::sim {
namespace {

using model::cpu::kWide;
using model::cpu::load;
using model::cpu::multiply_add;
using model::cpu::SixteenSums;
using model::cpu::store;
using model::cpu::Wide;

/// Values that are summed at once: as many as stay in registers.
constexpr std::size_t kColumns = 64, kColumnParts = kColumns / kWide;

/// Products of a query with up to kWide keys. Each is summed in the same order whatever the others are:
/// component i of every sixteen into sum i, then the sums from the first to the last.
void dots(const float* query, std::span<const SlotRow> slots, std::size_t dim, float* out) {
  constexpr std::size_t kLanes = SixteenSums::kLanes;
  alignas(64) float sums[kWide * kLanes], turned[kLanes * kWide];
  for (std::size_t j = 0; j < kWide; ++j) {
    SixteenSums of_key;
    const float* key = slots[std::min(j, slots.size() - 1)].key;
    std::size_t c = 0;
    for (; c + kLanes <= dim; c += kLanes) of_key.add_products(query + c, key + c);
    if (c < dim) {
      float a[kLanes] = {}, b[kLanes] = {};
      std::copy(query + c, query + dim, a);
      std::copy(key + c, key + dim, b);
      of_key.add_products(a, b);
    }
    for (std::size_t part = 0; part < SixteenSums::kParts; ++part)
      store(of_key.parts[part], sums + j * kLanes + part * kWide);
  }
  for (std::size_t first = 0; first < kLanes; first += kWide)
    model::cpu::transpose(sums + first, kLanes, turned + first * kWide, kWide);
  Wide all = load(turned);
  for (std::size_t i = 1; i < kLanes; ++i) all += load(turned + i * kWide);
  store(all, sums);
  std::copy_n(sums, slots.size(), out);
}

/// out [dim] = sum of weights[j] * value j, slot by slot.
void weighted_sum(const float* weights, std::span<const SlotRow> slots, std::size_t dim, float* out) {
  std::size_t first = 0;
  for (; first + kColumns <= dim; first += kColumns) {
    Wide sums[kColumnParts] = {};
    for (std::size_t j = 0; j < slots.size(); ++j) {
      const Wide weight = model::cpu::all_of(weights[j]);
      for (std::size_t part = 0; part < kColumnParts; ++part)
        sums[part] = multiply_add(weight, load(slots[j].value + first + part * kWide), sums[part]);
    }
    for (std::size_t part = 0; part < kColumnParts; ++part) store(sums[part], out + first + part * kWide);
  }
  if (first == dim) return;
  std::fill(out + first, out + dim, 0.0F);
  for (std::size_t j = 0; j < slots.size(); ++j)
    for (std::size_t c = first; c < dim; ++c) out[c] += weights[j] * slots[j].value[c];
}

}  // namespace

void SlotRows::attend(const AttentionShape& shape, MatrixView queries, std::span<const SlotRow> slots,
                      std::size_t value_dim, float* out, std::span<const float> sinks) {
  n_ = queries.rows;
  slots_ = slots.size();
  weights_.resize(n_ * slots_);
  sink_weights_.resize(n_);
  scaled_.resize(queries.cols);
  seen_.clear();
  held_.clear();
  const bool all = std::ranges::none_of(slots, [](const SlotRow& slot) { return slot.key == nullptr; });
  for (std::size_t slot = 0; slot < slots_ && !all; ++slot) {
    if (slots[slot].key == nullptr) continue;
    seen_.push_back(slot);
    held_.push_back(slots[slot]);
  }
  const std::span<const SlotRow> seen = all ? slots : held_;
  row_.resize(seen.size());
  for (std::size_t i = 0; i < n_; ++i) {
    float* const weights = weights_.data() + i * slots_;
    float* const row = all ? weights : row_.data();
    const std::span<const float> query = queries.row(i);
    for (std::size_t c = 0; c < queries.cols; ++c) scaled_[c] = query[c] * static_cast<float>(shape.scale);
    for (std::size_t j = 0; j < seen.size(); j += kWide)
      dots(scaled_.data(), seen.subspan(j, std::min(kWide, seen.size() - j)), queries.cols, row + j);
    cap_logits(row, seen.size(), shape.cap);
    for (std::size_t j = 0; j < seen.size(); ++j) row[j] += seen[j].bias;
    sink_weights_[i] = softmax(row, seen.size(), sinks.empty() ? kNoSink : sinks[i]);
    weighted_sum(row, seen, value_dim, out + i * value_dim);
    if (all) continue;
    std::fill_n(weights, slots_, 0.0F);
    for (std::size_t j = 0; j < seen_.size(); ++j) weights[seen_[j]] = row[j];
  }
}

}  // namespace kvsim::sim
