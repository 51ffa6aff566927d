#include "policies/parts/codes/scalar_code.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "policies/parts/codes/float_format.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {

std::uint64_t ScalarCode::group_bits() const {
  if (exact()) return 0;
  return kind == ScalarKind::offset ? 32 : kind == ScalarKind::integer ? 16 + bits : 16;
}

void ScalarCode::code(float* first, std::size_t n, std::size_t stride) const {
  if (exact() || n == 0) return;
  float least = first[0], largest = first[0];
  for (std::size_t i = 1; i < n; ++i) {
    least = std::min(least, first[i * stride]);
    largest = std::max(largest, first[i * stride]);
  }
  least *= clip;
  largest *= clip;
  const auto levels = static_cast<float>((1U << bits) - 1);
  float offset = 0, lowest = 0, highest = levels;
  if (kind == ScalarKind::absmax) {
    highest = static_cast<float>((1U << (bits - 1)) - 1);
    lowest = -highest;
  } else if (kind == ScalarKind::integer) {
    least = std::min(least, 0.0F);
    largest = std::max(largest, 0.0F);
  } else {
    offset = nearest_half(least);
  }
  const float scale = nearest_half(kind == ScalarKind::absmax ? std::max(-least, largest) / highest
                                                              : (largest - least) / levels);
  const float zero = kind == ScalarKind::integer && scale > 0
                         ? std::clamp(std::nearbyint(-least / scale), 0.0F, levels)
                         : 0.0F;
  for (std::size_t i = 0; i < n; ++i) {
    float& x = first[i * stride];
    const float level =
        scale > 0 ? std::clamp(std::nearbyint((x - offset) / scale) + zero, lowest, highest) - zero : 0.0F;
    const float left = x - (level * scale + offset);
    x = level * scale + offset;
    if (remainder == 0 || !(scale > 0)) continue;
    const auto half = static_cast<float>(1U << (remainder - 1));
    const float unit = scale / (2 * half);
    x += std::nearbyint(std::clamp(left / unit, -half, half - 1)) * unit;
  }
}

ScalarKind scalar_kind(std::string_view name) {
  if (name == "offset") return ScalarKind::offset;
  if (name == "integer") return ScalarKind::integer;
  if (name == "absmax") return ScalarKind::absmax;
  bug("unknown kind of code " + std::string(name));
}

ParamSpec bits_param(const char* fallback) {
  return count_param("bits", fallback, {1, 16}, "of a code, 1 to 8; 16: numbers are stored as they come",
                     "bits");
}

ParamSpec zero_param() {
  return choice_param(
      "zero", "offset", {"offset", "integer", "absmax"},
      "offset: a scale and the least number, 32 bits a group; integer: a scale and the code of 0; absmax: a "
      "scale alone, codes on both sides of 0");
}

ScalarCode scalar_code(const ParamValues& params, std::string_view where) {
  const ScalarCode code{params.has("zero") ? scalar_kind(params.word("zero")) : ScalarKind::offset,
                        params.count("bits")};
  if (code.bits > 8 && code.bits != 16)
    usage_error("bits=" + std::to_string(code.bits) + " is not a code", std::string(where),
                "Codes have 1 to 8 bits; 16 stores numbers as they come.");
  if (code.kind == ScalarKind::absmax && code.bits == 1)
    usage_error("one bit has no codes on both sides of 0", std::string(where),
                "zero=absmax needs 2 bits or more.");
  return code;
}

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
