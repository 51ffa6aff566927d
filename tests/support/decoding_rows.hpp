#pragma once
/// Attention of one unit's decode phase, for tests and benchmarks of schedules that know the future.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "sim/base/matrix_view.hpp"

namespace kvsim::test {

struct Decoding {
  std::size_t prompt, n_steps;
  std::vector<float> attention{};  ///< [n_steps, n_tokens()], 0 beyond the query
  bool again = false;              ///< the first step is the last prompt row, measured again

  std::size_t first() const { return again ? prompt - 1 : prompt; }  ///< position of the first step's query
  std::size_t n_tokens() const { return first() + n_steps; }
  MatrixView view() const { return {attention.data(), n_steps, n_tokens(), n_tokens()}; }
  float at(std::size_t step, std::size_t token) const { return attention[step * n_tokens() + token]; }
};

/// Weights in units of 1/1024, so that sums are exact in any order.
inline Decoding rows(std::size_t prompt, std::size_t n_steps, const std::vector<std::vector<int>>& weights,
                     bool again = false) {
  Decoding made{.prompt = prompt, .n_steps = n_steps, .again = again};
  made.attention.assign(n_steps * made.n_tokens(), 0.0F);
  for (std::size_t s = 0; s < n_steps; ++s)
    for (std::size_t j = 0; j <= made.first() + s; ++j)
      made.attention[s * made.n_tokens() + j] = static_cast<float>(weights[s][j]) / 1024.0F;
  return made;
}

/// Weights 0 .. levels - 1, half of them zero: few levels make many ties.
inline Decoding random_rows(std::size_t prompt, std::size_t n_steps, int levels, std::uint32_t seed,
                            bool again = false) {
  std::mt19937 draw(seed);
  std::vector<std::vector<int>> weights(n_steps);
  for (std::size_t s = 0; s < n_steps; ++s)
    for (std::size_t j = 0; j < prompt + s + (again ? 0 : 1); ++j)
      weights[s].push_back(draw() % 2 == 0 ? 0 : static_cast<int>(draw() % static_cast<unsigned>(levels)));
  return rows(prompt, n_steps, weights, again);
}

/// Softmax of a few keys with lasting attention, passing topics, recency and noise, in multiples of 2^-30, so
/// that sums are exact in any order.
inline Decoding lifelike_rows(std::size_t prompt, std::size_t n_steps, std::uint32_t seed,
                              bool again = false) {
  std::mt19937 draw(seed);
  std::normal_distribution<double> normal;
  Decoding made{.prompt = prompt, .n_steps = n_steps, .again = again};
  made.attention.assign(n_steps * made.n_tokens(), 0.0F);
  std::vector<double> lasting(made.n_tokens()), topic(made.n_tokens(), 0.0), weight(made.n_tokens());
  for (double& x : lasting) x = normal(draw);
  for (std::size_t s = 0; s < n_steps; ++s) {
    double sum = 0;
    for (std::size_t j = 0; j <= made.first() + s; ++j) {
      topic[j] = normal(draw) > 2 ? 4 : 0.9 * topic[j];
      const double recency = 3.0 / static_cast<double>(1 + made.first() + s - j);
      weight[j] = std::exp(lasting[j] + topic[j] + recency + normal(draw));
      sum += weight[j];
    }
    for (std::size_t j = 0; j <= made.first() + s; ++j)
      made.attention[s * made.n_tokens() + j] =
          static_cast<float>(std::round(0x1p30 * weight[j] / sum) * 0x1p-30);
  }
  return made;
}

}  // namespace kvsim::test
