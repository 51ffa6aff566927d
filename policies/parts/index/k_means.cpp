#include "policies/parts/index/k_means.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "policies/parts/codes/float_format.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy {
namespace {

class Lloyd {
 public:
  Lloyd(const MatrixView& points, std::size_t k)
      : points_(points), k_(k), centres_(k * points.cols), cluster_(points.rows), distance_(points.rows) {}

  void draw(std::uint64_t key) {
    std::vector<double> lots(points_.rows);
    for (std::size_t i = 0; i < lots.size(); ++i) lots[i] = uniform01(combine({key, i}));
    const std::vector<std::uint32_t> drawn = least_first<std::uint32_t>(lots);
    for (std::size_t c = 0; c < k_; ++c) start_at(c, drawn[c]);
  }

  void draw_apart(std::uint64_t key) {
    std::vector<double> distances(points_.rows, 1);  // the first is any
    std::vector<char> taken(points_.rows);
    for (std::size_t c = 0; c < k_; ++c) {
      const double lot =
          uniform01(combine({key, c})) * std::accumulate(distances.begin(), distances.end(), 0.0);
      // If no point is left that is not where a centre is, the first takes its turn.
      auto point = static_cast<std::size_t>(std::ranges::find(taken, 0) - taken.begin());
      double sum = 0;
      for (std::size_t i = 0; i < points_.rows; ++i) {
        sum += distances[i];
        if (sum <= lot) continue;
        point = i;
        break;
      }
      start_at(c, point);
      taken[point] = 1;
      for (std::size_t i = 0; i < points_.rows; ++i) {
        const auto distance = static_cast<double>(squared_distance(i, c));
        distances[i] = taken[i] ? 0 : c == 0 ? distance : std::min(distances[i], distance);
      }
    }
  }

  KMeans run(std::size_t most_rounds) {
    KMeans out;
    std::vector<std::uint32_t> before;
    do {
      before = cluster_;
      assign();
      fill_empty();
      move_centres();
      ++out.rounds;
    } while (out.rounds < most_rounds && (out.rounds == 1 || cluster_ != before));
    out.representatives = nearest_members();
    out.centres = std::move(centres_);
    return out;
  }

 private:
  void start_at(std::size_t c, std::size_t point) {
    std::copy_n(points_.row(point).begin(), points_.cols, centre(c));
  }
  float* centre(std::size_t c) { return centres_.data() + c * points_.cols; }

  float squared_distance(std::size_t point, std::size_t c) {
    const float *x = points_.row(point).data(), *y = centre(c);
    float sum = 0;
    for (std::size_t d = 0; d < points_.cols; ++d) sum += (x[d] - y[d]) * (x[d] - y[d]);
    return sum;
  }

  void assign() {
    for (std::size_t i = 0; i < points_.rows; ++i) {
      distance_[i] = squared_distance(i, 0);
      cluster_[i] = 0;
      for (std::size_t c = 1; c < k_; ++c) {
        const float distance = squared_distance(i, c);
        if (distance >= distance_[i]) continue;
        distance_[i] = distance;
        cluster_[i] = static_cast<std::uint32_t>(c);
      }
    }
  }

  void fill_empty() {
    std::vector<std::size_t> members(k_);
    for (const std::uint32_t c : cluster_) ++members[c];
    for (std::size_t c = 0; c < k_; ++c) {
      if (members[c] > 0) continue;
      std::size_t farthest = points_.rows;
      for (std::size_t i = 0; i < points_.rows; ++i)
        if (members[cluster_[i]] > 1 && (farthest == points_.rows || distance_[i] > distance_[farthest]))
          farthest = i;
      --members[cluster_[farthest]];
      ++members[c];
      cluster_[farthest] = static_cast<std::uint32_t>(c);
      distance_[farthest] = 0;
    }
  }

  void move_centres() {
    std::fill(centres_.begin(), centres_.end(), 0.0F);
    std::vector<std::size_t> members(k_);
    for (std::size_t i = 0; i < points_.rows; ++i) {
      ++members[cluster_[i]];
      for (std::size_t d = 0; d < points_.cols; ++d) centre(cluster_[i])[d] += points_(i, d);
    }
    for (std::size_t c = 0; c < k_; ++c)
      for (std::size_t d = 0; d < points_.cols; ++d) centre(c)[d] /= static_cast<float>(members[c]);
  }

  std::vector<std::uint32_t> nearest_members() {
    const auto none = static_cast<std::uint32_t>(points_.rows);
    std::vector<std::uint32_t> out(k_, none);
    std::vector<float> least(k_);
    for (std::size_t i = 0; i < points_.rows; ++i) {
      const std::uint32_t c = cluster_[i];
      const float distance = squared_distance(i, c);
      if (out[c] != none && distance >= least[c]) continue;
      out[c] = static_cast<std::uint32_t>(i);
      least[c] = distance;
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  MatrixView points_;
  std::size_t k_;
  std::vector<float> centres_;  ///< [k, dim]
  std::vector<std::uint32_t> cluster_;
  std::vector<float> distance_;  ///< distance of each point to its centre
};

}  // namespace

KMeans k_means(const MatrixView& points, std::size_t k, std::uint64_t key, std::size_t most_rounds,
               KMeansStart start) {
  Lloyd lloyd(points, k);
  start == KMeansStart::drawn ? lloyd.draw(key) : lloyd.draw_apart(key);
  return lloyd.run(most_rounds);
}

std::size_t VectorCode::nearest(std::span<const float> vector) const {
  std::size_t best = 0;
  float least = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const float* at = centres.data() + i * dim;
    float distance = 0;
    for (std::size_t c = 0; c < dim; ++c) distance += (vector[c] - at[c]) * (vector[c] - at[c]);
    if (i > 0 && distance >= least) continue;
    best = i;
    least = distance;
  }
  return best;
}

VectorCode clustered(const MatrixView& points, std::size_t size, std::uint64_t key, std::size_t most_rounds) {
  VectorCode out{points.cols, k_means(points, size, key, most_rounds).centres};
  for (float& x : out.centres) x = nearest_half(x);
  return out;
}

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
