#include "sim/requests/prefix/lru_stack.hpp"

#include <algorithm>

namespace kvsim::prefix {
namespace {

constexpr std::uint32_t kUnused = std::numeric_limits<std::uint32_t>::max();

}  // namespace

LruStack::LruStack(const PrefixTree& tree)
    : last_(tree.size(), kUnused), begins_(tree.requests(), 0), sums_(tree.requests() + 1, 0) {}

std::uint64_t LruStack::above(std::uint32_t request) const {
  std::int64_t below = 0;
  for (std::size_t i = request + std::size_t{1}; i > 0; i &= i - 1) below += sums_[i];
  return size_ - static_cast<std::uint64_t>(below);
}

void LruStack::add(std::uint32_t request, std::int64_t blocks) {
  for (std::size_t i = request + std::size_t{1}; i < sums_.size(); i += i & (~i + 1)) sums_[i] += blocks;
}

const std::vector<LruStack::Stretch>& LruStack::find(std::span<const Node> path) {
  stretches_.clear();
  std::size_t i = 0;
  while (i < path.size() && last_[path[i]] != kUnused) {
    const std::uint32_t request = last_[path[i]];
    const std::size_t begin = i;
    while (i < path.size() && last_[path[i]] == request) ++i;
    stretches_.push_back({begin, i, above(request) + (begin - begins_[request])});
  }
  return stretches_;
}

void LruStack::touch(std::span<const Node> path, std::uint32_t request) {
  for (std::size_t i = 0; i < path.size();) {
    const std::uint32_t before = last_[path[i]];
    const std::size_t begin = i;
    for (; i < path.size() && last_[path[i]] == before; ++i) last_[path[i]] = request;
    if (before == kUnused) {
      size_ += i - begin;
      continue;
    }
    begins_[before] = static_cast<std::uint32_t>(i);
    add(before, -static_cast<std::int64_t>(i - begin));
  }
  add(request, static_cast<std::int64_t>(path.size()));
}

std::size_t LruStack::within(std::span<const Stretch> stretches, std::uint64_t capacity) {
  std::size_t run = 0;
  for (const Stretch& stretch : stretches) {
    if (stretch.place >= capacity) break;
    run = stretch.begin + std::min<std::uint64_t>(stretch.end - stretch.begin, capacity - stretch.place);
    if (run < stretch.end) break;
  }
  return run;
}

}  // namespace kvsim::prefix
