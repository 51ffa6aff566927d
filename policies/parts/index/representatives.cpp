#include "policies/parts/index/representatives.hpp"

#include "sim/base/rng.hpp"

namespace kvsim::policy {
namespace {

std::size_t place(std::size_t i, std::size_t n, std::size_t count, Pick pick, std::uint64_t key) {
  const std::size_t first = i * n / count, size = (i + 1) * n / count - first;
  switch (pick) {
    case Pick::random:
      return first + static_cast<std::size_t>(uniform01(combine({key, i})) * static_cast<double>(size));
    case Pick::first:
      return first;
    case Pick::ends:
      return count == 1 ? 0 : i * (n - 1) / (count - 1);
    case Pick::stride:
      break;
  }
  return i * (n / count);
}

}  // namespace

std::vector<std::uint32_t> picked(std::span<const std::uint32_t> sorted, std::size_t count, Pick pick,
                                  std::uint64_t key) {
  std::vector<std::uint32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = sorted[place(i, sorted.size(), count, pick, key)];
  return out;
}

}  // namespace kvsim::policy
