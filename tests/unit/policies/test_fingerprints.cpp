#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "policies/parts/index/fingerprints.hpp"
#include "policies/parts/index/k_means.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::test_fingerprints {

using Items = std::vector<std::uint32_t>;

namespace {

Items first_numbers(std::uint32_t n) {
  Items out(n);
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

}  // namespace

TEST_CASE("distances are numbers of differing bits, whatever the width") {
  for (const std::size_t n_bits : {1U, 7U, 64U, 65U, 200U}) {
    constexpr std::size_t n_items = 40;
    std::vector<std::vector<bool>> plain(n_items, std::vector<bool>(n_bits));
    std::vector<bool> plain_anchor(n_bits);
    Fingerprints prints(n_items, n_bits);
    for (std::size_t i = 0; i < n_items; ++i)
      for (std::size_t bit = 0; bit < n_bits; ++bit)
        if (uniform01(combine({n_bits, i, bit})) < 0.4) {
          plain[i][bit] = true;
          prints.set(i, bit);
        }
    const Fingerprints::Bits anchor = make_bits(n_bits, [&](std::size_t bit) {
      return plain_anchor[bit] = uniform01(combine({n_bits, bit})) < 0.5;
    });
    std::vector<std::size_t> distances(n_items);
    for (std::size_t i = 0; i < n_items; ++i) {
      for (std::size_t bit = 0; bit < n_bits; ++bit) {
        CHECK(prints.get(i, bit) == plain[i][bit]);
        distances[i] += plain[i][bit] != plain_anchor[bit] ? 1 : 0;
      }
      CHECK(prints.distance(i, anchor) == distances[i]);
    }
    Items some;
    for (std::uint32_t i = 1; i < n_items; i += 2) some.push_back(i);
    Items expected = some;
    std::stable_sort(expected.begin(), expected.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return distances[a] < distances[b]; });
    CHECK(prints.nearest_first(some, anchor) == expected);
  }
}

TEST_CASE("the majority needs more than half") {
  Fingerprints prints(4, 3);
  for (const std::size_t item : {0U, 1U, 2U}) prints.set(item, 0);  // 3 of 4
  for (const std::size_t item : {0U, 1U}) prints.set(item, 1);      // exactly half
  prints.set(3, 2);                                                 // 1 of 4
  CHECK(prints.majority(first_numbers(4)) == Fingerprints::Bits{0b001});
  CHECK(prints.majority(Items{0, 1, 3}) == Fingerprints::Bits{0b011});
}

TEST_CASE("representatives of a sorted list, worked by hand") {
  // Seven in three groups [0,2), [2,4), [4,7).
  CHECK(picked(first_numbers(7), 3, Pick::first) == Items{0, 2, 4});
  CHECK(picked(first_numbers(7), 3, Pick::ends) == Items{0, 3, 6});
  CHECK(picked(first_numbers(7), 3, Pick::stride) == Items{0, 2, 4});
  // Strides round down: of fifteen, eight are the eight nearest; of eight groups the first begin at
  // floor(15 i / 8).
  CHECK(picked(first_numbers(15), 8, Pick::stride) == Items{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(picked(first_numbers(15), 8, Pick::first) == Items{0, 1, 3, 5, 7, 9, 11, 13});
  CHECK(picked(first_numbers(15), 8, Pick::ends) == Items{0, 2, 4, 6, 8, 10, 12, 14});
  CHECK(picked(Items{5, 3}, 1, Pick::ends) == Items{5});
  CHECK(picked(Items{5, 3}, 2, Pick::random, 1) == Items{5, 3});
  CHECK(picked(Items{}, 0, Pick::random).empty());
}

TEST_CASE("a random representative is any of its group and no other") {
  std::vector<std::vector<int>> seen(3, std::vector<int>(7));
  for (std::uint64_t key = 0; key < 600; ++key) {
    const Items out = picked(first_numbers(7), 3, Pick::random, key);
    for (std::size_t i = 0; i < 3; ++i) ++seen[i][out[i]];
  }
  const std::vector<std::size_t> bounds = {0, 2, 4, 7};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t item = 0; item < 7; ++item) {
      const bool inside = item >= bounds[i] && item < bounds[i + 1];
      // 600 draws over at most three: 200 expected, five standard deviations are 58.
      CHECK((inside ? seen[i][item] > 140 : seen[i][item] == 0));
    }
}

TEST_CASE("k-means finds separate clusters, one member of each") {
  // Around 0, 100 and 200 on a line; the middle member of each is nearest to its centre.
  const std::vector<float> line = {0, 100, 200, 1, 101, 201, 2, 102, 202};
  int found = 0;
  for (std::uint64_t key = 0; key < 20; ++key) {
    const KMeans out = k_means({line.data(), line.size(), 1, 1}, 3, key);
    CHECK(out.representatives.size() == 3);
    CHECK(out.rounds <= kMostRounds);
    if (out.representatives == Items{3, 4, 5}) ++found;
    CHECK(k_means({line.data(), line.size(), 1, 1}, 3, key).representatives == out.representatives);
  }
  CHECK(found >= 10);  // Lloyd's iterations may settle elsewhere when two clusters begin in one place
}

TEST_CASE("k-means++ starts with points that lie apart") {
  // Three places 1,000 apart: a second start at one that is taken has no chance, and the centres are there.
  const std::vector<float> line = {0, 1000, 2000, 0, 1000, 2000, 0, 1000, 2000};
  const MatrixView points{line.data(), line.size(), 1, 1};
  for (std::uint64_t key = 0; key < 50; ++key) {
    std::vector<float> centres = k_means(points, 3, key, 1, KMeansStart::plus_plus).centres;
    std::sort(centres.begin(), centres.end());
    CHECK(centres == std::vector<float>{0, 1000, 2000});
    // More centres than places: those that are left take their turn.
    CHECK(k_means(points, 9, key, 1, KMeansStart::plus_plus).representatives == first_numbers(9));
  }
}

TEST_CASE("k-means at its limits") {
  const std::vector<float> line = {4, 0, 1, 2, 3};
  const MatrixView points{line.data(), 5, 1, 1};
  CHECK(k_means(points, 5, 1).representatives == first_numbers(5));
  CHECK(k_means(points, 1, 1).representatives == Items{3});  // the mean is 2
  // Equal points still give as many representatives as asked.
  const std::vector<float> equal(24, 1.0F);
  for (std::uint64_t key = 0; key < 5; ++key) {
    const Items out = k_means({equal.data(), 12, 2, 2}, 7, key).representatives;
    CHECK(out.size() == 7);
    CHECK(std::adjacent_find(out.begin(), out.end()) == out.end());
  }
}

TEST_CASE("settled k-means is a fixed point: every point lies with its nearest centre") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    constexpr std::size_t n = 30, dim = 2, k = 4;
    std::vector<float> data(n * dim);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(uniform01(combine({seed, i})));
    const MatrixView points{data.data(), n, dim, dim};
    const KMeans out = k_means(points, k, seed);
    REQUIRE(out.rounds < kMostRounds);
    // Assigning to the nearest representative, then to the mean of what came together, changes nothing that
    // representatives would not survive: they lie in different cells of the means.
    std::vector<std::vector<std::size_t>> cells(k);
    std::vector<std::vector<double>> means(k, std::vector<double>(dim));
    for (std::size_t c = 0; c < k; ++c)
      for (std::size_t d = 0; d < dim; ++d)
        means[c][d] = static_cast<double>(points(out.representatives[c], d));
    for (int round = 0; round < 50; ++round) {
      for (auto& cell : cells) cell.clear();
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<double> distance(k);
        for (std::size_t c = 0; c < k; ++c)
          for (std::size_t d = 0; d < dim; ++d) {
            const double difference = static_cast<double>(points(i, d)) - means[c][d];
            distance[c] += difference * difference;
          }
        cells[static_cast<std::size_t>(std::min_element(distance.begin(), distance.end()) - distance.begin())]
            .push_back(i);
      }
      for (std::size_t c = 0; c < k; ++c)
        for (std::size_t d = 0; d < dim; ++d) {
          means[c][d] = 0;
          for (const std::size_t i : cells[c]) means[c][d] += static_cast<double>(points(i, d));
          means[c][d] /= static_cast<double>(cells[c].size());
        }
    }
    for (const auto& cell : cells)
      CHECK(std::count_if(cell.begin(), cell.end(), [&](std::size_t i) {
              return std::count(out.representatives.begin(), out.representatives.end(), i) > 0;
            }) == 1);
  }
}

}  // namespace kvsim::policy::test_fingerprints
