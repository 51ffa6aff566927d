#include "sim/held_outputs.hpp"

#include <algorithm>

#include "sim/attention_rows.hpp"

namespace kvsim::sim {
namespace {

/// Cells that one word of holders tells apart.
constexpr std::size_t kBatch = 64;
/// Fewer positions than this do not pay for a GEMM and an addition per cell.
constexpr std::size_t kLeastShared = 16;

void add(std::span<const float> from, std::span<float> to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

}  // namespace

void HeldOutputs::compute(const AttendedBlock& block, std::span<const std::span<const Residency>> stays,
                          std::vector<std::vector<float>>& out) {
  out.resize(stays.size());
  for (std::vector<float>& cell : out) cell.assign(block.attention.rows * block.values.cols, 0.0F);
  for (std::size_t first = 0; first < stays.size(); first += kBatch) {
    const auto batch = stays.subspan(first, std::min(kBatch, stays.size() - first));
    sort_positions(block, batch);
    for (std::size_t begin = 0, end; begin < order_.size(); begin = end) {
      const std::uint64_t cells = holders_[static_cast<std::size_t>(order_[begin])];
      for (end = begin + 1; end < order_.size() && holders_[static_cast<std::size_t>(order_[end])] == cells;)
        ++end;
      const auto positions = std::span<const std::int32_t>(order_).subspan(begin, end - begin);
      if (positions.size() >= kLeastShared) {
        add_shared(block, positions, cells, out, first);
        continue;
      }
      for (std::size_t c = 0; c < batch.size(); ++c)
        if (cells >> c & 1U)
          for (const std::int32_t position : positions) loose_[c].push_back({position, 0, block.n_steps});
    }
    for (std::size_t c = 0; c < batch.size(); ++c) add_loose(block, loose_[c], out[first + c]);
  }
}

void HeldOutputs::sort_positions(const AttendedBlock& block,
                                 std::span<const std::span<const Residency>> stays) {
  holders_.assign(block.values.rows, 0);
  loose_.resize(std::max(loose_.size(), stays.size()));
  const std::uint32_t end = block.first_step + block.n_steps;
  for (std::size_t c = 0; c < stays.size(); ++c) {
    loose_[c].clear();
    for (const Residency& stay : stays[c]) {
      if (stay.first <= block.first_step && stay.last >= end) {
        holders_[static_cast<std::size_t>(stay.position)] |= std::uint64_t{1} << c;
      } else {
        const std::uint32_t from = std::max(stay.first, block.first_step) - block.first_step;
        loose_[c].push_back({stay.position, from, std::min(stay.last, end) - block.first_step});
      }
    }
  }
  order_.clear();
  for (std::size_t j = 0; j < holders_.size(); ++j)
    if (holders_[j] != 0) order_.push_back(static_cast<std::int32_t>(j));
  std::stable_sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
    return holders_[static_cast<std::size_t>(a)] < holders_[static_cast<std::size_t>(b)];
  });
}

void HeldOutputs::gather_values(const AttendedBlock& block, std::size_t i, std::int32_t position) {
  const std::span<const float> v = block.values.row(static_cast<std::size_t>(position));
  std::copy(v.begin(), v.end(), values_.begin() + static_cast<std::ptrdiff_t>(i * v.size()));
}

void HeldOutputs::add_shared(const AttendedBlock& block, std::span<const std::int32_t> positions,
                             std::uint64_t cells, std::vector<std::vector<float>>& out,
                             std::size_t first_cell) {
  const std::size_t n = positions.size(), rows = block.attention.rows, dim = block.values.cols;
  values_.resize(n * dim);
  rows_.resize(rows * n);
  sum_.resize(rows * dim);
  for (std::size_t i = 0; i < n; ++i) gather_values(block, i, positions[i]);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = block.attention.row(r).data();
    float* to = rows_.data() + r * n;
    for (std::size_t i = 0; i < n; ++i) to[i] = from[positions[i]];
  }
  multiply({rows_.data(), rows, n, n}, {values_.data(), n, dim, dim}, sum_.data());
  for (std::size_t c = 0; cells >> c != 0; ++c) {
    if (cells >> c & 1U) add(sum_, out[first_cell + c]);
    if (c + 1 == kBatch) break;
  }
}

void HeldOutputs::add_loose(const AttendedBlock& block, std::span<const Loose> loose,
                            std::vector<float>& out) {
  if (loose.empty()) return;
  const std::size_t n = loose.size(), rows = block.attention.rows, dim = block.values.cols;
  values_.resize(n * dim);
  rows_.resize(rows * n);
  sum_.resize(rows * dim);
  for (std::size_t i = 0; i < n; ++i) gather_values(block, i, loose[i].position);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = block.attention.row(r).data();
    const auto step = static_cast<std::uint32_t>(r % block.n_steps);
    float* to = rows_.data() + r * n;
    for (std::size_t i = 0; i < n; ++i)
      to[i] = loose[i].from <= step && step < loose[i].to ? from[loose[i].position] : 0.0F;
  }
  multiply({rows_.data(), rows, n, n}, {values_.data(), n, dim, dim}, sum_.data());
  add(sum_, out);
}

}  // namespace kvsim::sim
