#pragma once
/// The best permanent eviction as a plain minimum-cost flow: a reference for the solver of
/// policies/parts/oracles/optimal_retention.hpp, written from the definition and sharing no code with it.
///
/// One node per step and one per (token, step); `budget` units of flow run along time. A unit enters a
/// token's chain when the token joins, collects its attention step by step and may return to the time line
/// after any step. The chain's first arc of a generated token carries a bonus so large that every optimum
/// takes it: the token is resident at its own step. A first step that is the last prompt row again has no
/// such token: the attention on its own key is retained in any case and is not part of the flow. Successive
/// shortest paths, found by Bellman-Ford with a queue.
#include <cstddef>
#include <deque>
#include <limits>
#include <vector>

#include "sim/base/matrix_view.hpp"

namespace kvsim::test {

class TextbookRetention {
 public:
  TextbookRetention(const MatrixView& attention, std::size_t prompt, std::size_t budget)
      : n_steps_(attention.rows), budget_(budget), bonus_(2.0 * static_cast<double>(n_steps_) + 1) {
    const std::size_t first = attention.cols - n_steps_;  // position of the first step
    if (first < prompt) retained_ = static_cast<double>(attention(0, first));
    out_.resize(n_steps_ + 1);
    for (std::size_t s = 0; s < n_steps_; ++s) arc(s, s + 1, budget, 0);
    for (std::size_t token = 0; token < attention.cols; ++token) {
      const std::size_t joins = token < prompt ? 0 : token - first;
      if (token >= prompt) retained_ -= bonus_;
      std::size_t node = joins;
      for (std::size_t s = joins; s < n_steps_; ++s) {
        out_.emplace_back();
        const std::size_t after = out_.size() - 1;
        const bool own = token == first + s, free = own && token < prompt;
        arc(node, after, 1, free ? 0 : -static_cast<double>(attention(s, token)) - (own ? bonus_ : 0));
        arc(after, s + 1, 1, 0);
        node = after;
      }
    }
  }

  /// Returns the most attention that can be retained.
  double solve() {
    double cost = 0;
    for (std::size_t unit = 0; unit < budget_ && n_steps_ > 0; ++unit) cost += push_one();
    return retained_ - cost;
  }

 private:
  struct Arc {
    std::size_t to, capacity;
    double cost;
  };

  void arc(std::size_t from, std::size_t to, std::size_t capacity, double cost) {
    out_[from].push_back(arcs_.size());
    arcs_.push_back({to, capacity, cost});
    out_[to].push_back(arcs_.size());
    arcs_.push_back({from, 0, -cost});
  }

  double push_one() {
    std::vector<double> distance(out_.size(), std::numeric_limits<double>::infinity());
    std::vector<std::size_t> by(out_.size());
    std::vector<bool> queued(out_.size(), false);
    std::deque<std::size_t> queue{0};
    distance[0] = 0;
    while (!queue.empty()) {
      const std::size_t node = queue.front();
      queue.pop_front();
      queued[node] = false;
      for (const std::size_t id : out_[node]) {
        const Arc& a = arcs_[id];
        // The margin prevents an endless loop around a cycle of length zero because of rounding.
        if (a.capacity == 0 || distance[node] + a.cost >= distance[a.to] - 1e-11) continue;
        distance[a.to] = distance[node] + a.cost;
        by[a.to] = id;
        if (!queued[a.to]) queue.push_back(a.to), queued[a.to] = true;
      }
    }
    for (std::size_t node = n_steps_; node != 0; node = arcs_[by[node] ^ 1].to) {
      --arcs_[by[node]].capacity;
      ++arcs_[by[node] ^ 1].capacity;
    }
    return distance[n_steps_];
  }

  std::size_t n_steps_, budget_;
  double bonus_, retained_ = 0;  ///< attention retained beside the flow, minus all bonuses
  std::vector<Arc> arcs_;        ///< an arc and its reverse lie next to each other
  std::vector<std::vector<std::size_t>> out_;
};

}  // namespace kvsim::test
