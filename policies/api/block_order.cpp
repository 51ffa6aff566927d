#include "policies/api/block_order.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/error.hpp"

namespace kvsim::policy {

BlockOrder::BlockOrder(std::span<const double> scores, std::size_t granularity, Tie tie)
    : length_(scores.size()),
      granularity_(granularity),
      order_((scores.size() + granularity - 1) / granularity) {
  std::vector<double> means(order_.size());
  for (std::size_t b = 0; b < means.size(); ++b) {
    for (const double score : scores.subspan(b * granularity, size(b))) means[b] += score;
    means[b] /= static_cast<double>(size(b));
  }
  std::iota(order_.begin(), order_.end(), 0U);
  std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (means[a] != means[b]) return means[a] > means[b];
    return tie == Tie::newest ? a < b : a > b;
  });
}

std::size_t BlockOrder::size(std::size_t block) const {
  return std::min(length_ - block * granularity_, granularity_);
}

std::vector<char> BlockOrder::protected_blocks(const Protection& protection) const {
  const std::size_t sinks = std::min(protection.sinks, length_);
  const std::size_t window_from = length_ - std::min(protection.window, length_ - sinks);
  std::vector<char> out(order_.size());
  for (std::size_t b = 0; b < out.size(); ++b) {
    const std::size_t begin = b * granularity_;
    out[b] = begin < sinks || begin + size(b) > window_from;
  }
  return out;
}

std::size_t BlockOrder::tokens(const std::vector<char>& blocks) const {
  std::size_t sum = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) sum += blocks[b] ? size(b) : 0;
  return sum;
}

std::size_t BlockOrder::protected_tokens(const Protection& protection) const {
  return tokens(protected_blocks(protection));
}

std::vector<Position> BlockOrder::best(std::size_t budget, std::vector<char> stays) const {
  const std::size_t held = tokens(stays);
  std::size_t room = std::min(budget, length_);
  if (held > room) bug("budget is below the policy's floor");
  room -= held;
  for (const std::uint32_t b : order_) {
    if (stays[b]) continue;
    if (size(b) > room) break;
    stays[b] = 1;
    room -= size(b);
  }
  std::vector<Position> keep;
  keep.reserve(std::min(budget, length_));
  for (std::size_t position = 0; position < length_; ++position)
    if (stays[position / granularity_]) keep.push_back(static_cast<Position>(position));
  return keep;
}

}  // namespace kvsim::policy
