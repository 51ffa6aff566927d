#include "policies/api/block_order.hpp"

#include <numeric>

#include "sim/base/error.hpp"

namespace kvsim::policy {

BlockOrder::BlockOrder(std::span<const double> scores, std::size_t granularity, Tie tie, std::size_t first)
    : blocks_{scores.size(), granularity, first}, order_(blocks_.count()) {
  std::vector<double> means(order_.size());
  for (std::size_t b = 0; b < means.size(); ++b) {
    for (const double score : scores.subspan(blocks_.begin(b), blocks_.size(b))) means[b] += score;
    means[b] /= static_cast<double>(blocks_.size(b));
  }
  std::iota(order_.begin(), order_.end(), 0U);
  std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (means[a] != means[b]) return means[a] > means[b];
    return tie == Tie::newest ? a < b : a > b;
  });
}

std::vector<char> BlockOrder::protected_blocks(const Protection& protection) const {
  const std::size_t length = blocks_.length,
                    sinks = std::min(protection.sinks - std::min(protection.sinks, blocks_.first), length);
  const std::size_t window_from = length - std::min(protection.window, length - sinks);
  std::vector<char> out(order_.size());
  for (std::size_t b = 0; b < out.size(); ++b)
    out[b] = blocks_.begin(b) < sinks || blocks_.end(b) > window_from;
  return out;
}

std::size_t BlockOrder::tokens(const std::vector<char>& blocks) const {
  std::size_t sum = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) sum += blocks[b] ? blocks_.size(b) : 0;
  return sum;
}

std::size_t BlockOrder::protected_tokens(const Protection& protection) const {
  return tokens(protected_blocks(protection));
}

std::vector<Position> BlockOrder::best(std::size_t budget, std::vector<char> stays) const {
  const std::size_t held = tokens(stays);
  std::size_t room = std::min(budget, blocks_.length);
  if (held > room) bug("budget is below the policy's floor");
  room -= held;
  for (const std::uint32_t b : order_) {
    if (stays[b]) continue;
    if (blocks_.size(b) > room) break;
    stays[b] = 1;
    room -= blocks_.size(b);
  }
  std::vector<Position> keep;
  keep.reserve(std::min(budget, blocks_.length));
  for (std::size_t row = 0; row < blocks_.length; ++row)
    if (stays[blocks_.of(row)]) keep.push_back(static_cast<Position>(row));
  return keep;
}

}  // namespace kvsim::policy
