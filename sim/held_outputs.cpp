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
  for (std::vector<float>& cell : out) cell.assign(block.attention.cols * block.values.cols, 0.0F);
  for (std::size_t first = 0; first < stays.size(); first += kBatch) {
    const auto batch = stays.subspan(first, std::min(kBatch, stays.size() - first));
    sort_positions(block, batch);
    for (std::size_t begin = 0, end; begin < shared_.size(); begin = end) {
      const std::uint64_t cells = holders_of(shared_[begin]);
      for (end = begin + 1; end < shared_.size() && holders_of(shared_[end]) == cells;) ++end;
      const auto held = std::span<const Held>(shared_).subspan(begin, end - begin);
      const bool worth_it = held.size() >= kLeastShared;
      if (worth_it) sum_over(block, held);
      for (std::size_t c = 0; c < batch.size(); ++c) {
        if ((cells >> c & 1U) == 0) continue;
        if (worth_it) {
          add(sum_, out[first + c]);
        } else {
          loose_[c].insert(loose_[c].end(), held.begin(), held.end());
        }
      }
    }
    for (std::size_t c = 0; c < batch.size(); ++c) {
      if (loose_[c].empty()) continue;
      sum_over(block, loose_[c]);
      add(sum_, out[first + c]);
    }
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
  shared_.clear();
  for (std::size_t j = 0; j < holders_.size(); ++j)
    if (holders_[j] != 0) shared_.push_back({static_cast<std::int32_t>(j), 0, block.n_steps});
  std::stable_sort(shared_.begin(), shared_.end(),
                   [&](const Held& a, const Held& b) { return holders_of(a) < holders_of(b); });
}

void HeldOutputs::sum_over(const AttendedBlock& block, std::span<const Held> held) {
  const std::size_t n = held.size(), rows = block.attention.cols, dim = block.values.cols;
  rows_.resize(n * rows);
  values_.resize(n * dim);
  sum_.resize(rows * dim);
  for (std::size_t i = 0; i < n; ++i) {
    const auto position = static_cast<std::size_t>(held[i].position);
    std::copy_n(block.values.row(position).data(), dim, values_.data() + i * dim);
    const float* from = block.attention.row(position).data();
    float* to = rows_.data() + i * rows;
    if (held[i].from == 0 && held[i].to == block.n_steps) {
      std::copy_n(from, rows, to);
      continue;
    }
    std::fill_n(to, rows, 0.0F);
    for (std::size_t head = 0; head < rows; head += block.n_steps)
      std::copy(from + head + held[i].from, from + head + held[i].to, to + head + held[i].from);
  }
  multiply_transposed({rows_.data(), n, rows, rows}, {values_.data(), n, dim, dim}, sum_.data());
}

}  // namespace kvsim::sim
