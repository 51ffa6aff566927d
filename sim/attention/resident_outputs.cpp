#include "sim/attention/resident_outputs.hpp"

#include <algorithm>

#include "sim/attention/outer_products.hpp"

namespace kvsim::sim {
namespace {

/// o' is not computed from what was evicted where less than this share of a row's mass is resident: the
/// difference would be mostly rounding.
constexpr float kLeastLeft = 0.25F;

}  // namespace

void ResidentOutputs::begin(const AttendedBlock& block) {
  const std::size_t rows = block.attention.cols, dim = block.values.cols;
  steps_.assign(block.attention.rows, {0, block.n_steps});
  positions_.resize(block.attention.rows);
  for (std::size_t j = 0; j < positions_.size(); ++j) positions_[j] = static_cast<std::int32_t>(j);
  sum(block, true);
  whole_.resize(rows * dim);
  mass_.resize(rows);
  sink_.assign(rows, 0.0F);
  for (std::size_t r = 0; r < rows; ++r) {
    if (block.sinks) sink_[r] = std::max(0.0F, 1 - seen_[r]);
    mass_[r] = seen_[r] + sink_[r];
    for (std::size_t c = 0; c < dim; ++c) whole_[r * dim + c] = sums_[r * dim + c] / mass_[r];
  }
}

void ResidentOutputs::difference(const AttendedBlock& block, std::span<const ResidentInterval> intervals,
                                 std::vector<float>& out) {
  const std::size_t rows = block.attention.cols, dim = block.values.cols, n = block.attention.rows;
  const std::uint32_t end = block.first_step + block.n_steps;
  steps_.assign(n, {});
  for (const ResidentInterval& interval : intervals)
    steps_[static_cast<std::size_t>(interval.position)] = {
        std::max(interval.first, block.first_step) - block.first_step,
        std::min(interval.last, end) - block.first_step};
  // No query attends a token of the block before the token's own step, so the token is not evicted there.
  for (std::size_t s = 1; s < block.n_steps; ++s) {
    Steps& own = steps_[n - block.n_steps + s];
    if (own.to > own.from) own.from = 0;
  }
  const auto whole = [&](const Steps& held) { return held.from == 0 && held.to == block.n_steps; };
  const auto n_dropped = n - static_cast<std::size_t>(std::count_if(steps_.begin(), steps_.end(), whole));
  bool by_held = intervals.size() <= n_dropped;
  const auto sum_one_side = [&] {
    positions_.clear();
    for (std::size_t j = 0; j < n; ++j)
      if (by_held ? steps_[j].to > steps_[j].from : !whole(steps_[j]))
        positions_.push_back(static_cast<std::int32_t>(j));
    sum(block, by_held);
  };
  sum_one_side();
  if (!by_held && little_is_left()) {
    by_held = true;
    sum_one_side();
  }

  out.resize(rows * dim);
  evicted_.resize(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* sums = sums_.data() + r * dim;
    const float* o = whole_.data() + r * dim;
    const float seen = seen_[r], held = seen + sink_[r];
    evicted_[r] = (by_held ? mass_[r] - held : seen) / mass_[r];
    if (by_held) {
      for (std::size_t c = 0; c < dim; ++c) out[r * dim + c] = (held > 0 ? sums[c] / held : 0.0F) - o[c];
    } else {
      // O is the sum of the whole row and m its mass, D and d those of the evicted positions: o' - o = (O -
      // D) / (m - d) - O / m.
      const float left = mass_[r] - seen;
      for (std::size_t c = 0; c < dim; ++c)
        out[r * dim + c] = left > 0 ? (o[c] * seen - sums[c]) / left : -o[c];
    }
  }
}

bool ResidentOutputs::little_is_left() const {
  for (std::size_t r = 0; r < mass_.size(); ++r)
    if (mass_[r] - seen_[r] < kLeastLeft * mass_[r]) return true;
  return false;
}

void ResidentOutputs::sum(const AttendedBlock& block, bool held) {
  const std::size_t n = positions_.size(), rows = block.attention.cols, dim = block.values.cols;
  const auto all_steps = [&](const Steps& steps) {
    return held ? steps.from == 0 && steps.to == block.n_steps : steps.from == steps.to;
  };
  const auto in_part = static_cast<std::size_t>(std::count_if(
      positions_.begin(), positions_.end(),
      [&](std::int32_t position) { return !all_steps(steps_[static_cast<std::size_t>(position)]); }));
  masked_.resize(in_part * rows);
  weights_.resize(n);
  values_.resize(n);
  seen_.assign(rows, 0.0F);
  float* masked = masked_.data();
  for (std::size_t i = 0; i < n; ++i) {
    const auto position = static_cast<std::size_t>(positions_[i]);
    const float* from = block.attention.row(position).data();
    if (const Steps& steps = steps_[position]; !all_steps(steps)) {
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t s = r % block.n_steps;
        masked[r] = (s >= steps.from && s < steps.to) == held ? from[r] : 0.0F;
      }
      from = masked;
      masked += rows;
    }
    weights_[i] = from;
    values_[i] = block.values.row(position).data();
    for (std::size_t r = 0; r < rows; ++r) seen_[r] += from[r];
  }
  sums_.resize(rows * dim);
  sum_outer_products(weights_, rows, values_, dim, sums_.data());
}

}  // namespace kvsim::sim
