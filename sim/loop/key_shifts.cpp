#include "sim/loop/key_shifts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvsim::sim {

void dropped_between(std::span<const policy::Position> attended, std::vector<std::uint32_t>& shifts) {
  thread_local std::vector<std::size_t> latest_first;
  latest_first.resize(attended.size());
  std::iota(latest_first.begin(), latest_first.end(), std::size_t{0});
  std::sort(latest_first.begin(), latest_first.end(),
            [&](std::size_t a, std::size_t b) { return attended[a] > attended[b]; });
  shifts.resize(attended.size());
  for (std::size_t behind = 0; behind < latest_first.size(); ++behind) {
    const std::size_t slot = latest_first[behind];
    shifts[slot] = static_cast<std::uint32_t>(attended[latest_first[0]] - attended[slot]) -
                   static_cast<std::uint32_t>(behind);
  }
}

std::vector<std::uint32_t> dropped_before(std::span<const policy::Position> kept, std::size_t end) {
  std::vector<char> is_kept(end);
  for (const policy::Position position : kept) is_kept[static_cast<std::size_t>(position)] = 1;
  std::vector<std::uint32_t> shifts(end);
  std::uint32_t dropped = 0;
  for (std::size_t position = end; position-- > 0;) {
    shifts[position] = dropped;
    if (is_kept[position] == 0) ++dropped;
  }
  return shifts;
}

KeyRotation::KeyRotation(const Rotary& rotary, std::size_t most)
    : pairs_(rotary.inv_freq.size()),
      begin_(rotary.first),
      interleaved_(rotary.layout == RotaryLayout::interleaved),
      cosine_(most * pairs_),
      sine_(most * pairs_) {
  for (std::size_t shift = 0; shift < most; ++shift)
    for (std::size_t pair = 0; pair < pairs_; ++pair) {
      const double angle = static_cast<double>(shift) * static_cast<double>(rotary.inv_freq[pair]);
      cosine_[shift * pairs_ + pair] = static_cast<float>(std::cos(angle));
      sine_[shift * pairs_ + pair] = static_cast<float>(std::sin(angle));
    }
}

void KeyRotation::rotate(std::span<const float> key, std::uint32_t shift, float* out) const {
  const float* cosine = cosine_.data() + shift * pairs_;
  const float* sine = sine_.data() + shift * pairs_;
  const std::size_t to_first = interleaved_ ? 2 : 1, to_second = interleaved_ ? 1 : pairs_;
  std::ranges::copy(key, out);
  for (std::size_t pair = 0; pair < pairs_; ++pair) {
    const std::size_t first = begin_ + pair * to_first, second = first + to_second;
    out[first] = key[first] * cosine[pair] - key[second] * sine[pair];
    out[second] = key[first] * sine[pair] + key[second] * cosine[pair];
  }
}

}  // namespace kvsim::sim
