#include "policies/parts/codes/level_code.hpp"

#include <algorithm>

#include "policies/parts/codes/float_format.hpp"

namespace kvsim::policy {

std::size_t nearest_level(std::span<const float> levels, float x) {
  const auto above = static_cast<std::size_t>(std::ranges::lower_bound(levels, x) - levels.begin());
  if (above == 0) return 0;
  if (above == levels.size()) return levels.size() - 1;
  return levels[above] - x < x - levels[above - 1] ? above : above - 1;
}

std::vector<float> level_means(std::vector<float> numbers, std::size_t levels, std::size_t rounds) {
  std::ranges::sort(numbers);
  const std::size_t n = numbers.size();
  std::vector<double> sum_before(n + 1), centres(levels);
  for (std::size_t i = 0; i < n; ++i) sum_before[i + 1] = sum_before[i] + static_cast<double>(numbers[i]);
  for (std::size_t c = 0; c < levels; ++c)
    centres[c] = static_cast<double>(numbers[(2 * c + 1) * n / (2 * levels)]);
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::vector<double> before = centres;
    std::size_t begin = 0;
    for (std::size_t c = 0; c < levels; ++c) {
      const auto past = [&](float x) { return 2 * static_cast<double>(x) <= before[c] + before[c + 1]; };
      const auto end = c + 1 == levels
                           ? numbers.end()
                           : std::partition_point(numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                                                  numbers.end(), past);
      const auto after = static_cast<std::size_t>(end - numbers.begin());
      if (after > begin)
        centres[c] = (sum_before[after] - sum_before[begin]) / static_cast<double>(after - begin);
      begin = after;
    }
    if (centres == before) break;
  }
  std::vector<float> out;
  for (const double centre : centres) out.push_back(nearest_half(static_cast<float>(centre)));
  return out;
}

}  // namespace kvsim::policy
