// SimHash's statistics, and the scan for the farthest code against a plain search.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>
#include <numeric>

#include "policies/parts/index/fingerprints.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::test_sim_hash {
namespace {

std::vector<float> noise(std::size_t dim, std::uint64_t key) {
  std::vector<float> out(dim);
  for (std::size_t c = 0; c < dim; ++c) out[c] = static_cast<float>(normal(combine({key, c})));
  return out;
}

}  // namespace

TEST_CASE("two codes differ in angle / pi of their bits") {
  // 500 projections of 64 bits: 32,000 independent bits, standard deviation sqrt(p (1 - p) / 32000) <=
  // 0.0028.
  constexpr std::size_t kDim = 8, kProjections = 500;
  for (const double angle : {0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, std::numbers::pi}) {
    // Lengths 3 and 0.2: only the angle counts.
    std::vector<float> x(kDim), y(kDim);
    x[2] = 3;
    y[2] = static_cast<float>(0.2 * std::cos(angle));
    y[5] = static_cast<float>(0.2 * std::sin(angle));
    double differing = 0;
    for (std::uint64_t key = 0; key < kProjections; ++key) {
      const SimHash hash(64, kDim, key);
      differing += std::popcount(hash(x) ^ hash(y));
    }
    const double share = differing / (64.0 * kProjections), p = angle / std::numbers::pi;
    CAPTURE(angle);
    CHECK(std::abs(share - p) <= 5 * std::sqrt(p * (1 - p) / (64.0 * kProjections)) + 1e-6);
  }
}

TEST_CASE("bits of a code are independent of each other") {
  // Random vectors: every bit is 1 half of the time, every pair of bits equal half of the time, up to what
  // 200 fixed projections of 40 vectors leave: 8,000 draws, standard deviation 0.0056 each.
  std::vector<double> equal(15);
  double ones = 0;
  for (std::uint64_t key = 0; key < 200; ++key) {
    const SimHash hash(16, 40, key);
    for (std::uint64_t v = 0; v < 40; ++v) {
      const std::uint64_t code = hash(noise(40, combine({key, v, 77})));
      ones += std::popcount(code);
      for (std::size_t b = 0; b < 15; ++b) equal[b] += ((code >> b ^ code >> (b + 1)) & 1) == 0 ? 1 : 0;
    }
  }
  CHECK(ones / (16 * 8000.0) == Approx(0.5).margin(0.01));
  for (const double n : equal) CHECK(n / 8000 == Approx(0.5).margin(0.028));
}

TEST_CASE("zero lies on the positive side of every hyperplane") {
  const std::vector<float> zero(12), minus_zero(12, -0.0F);
  CHECK(SimHash(64, 12, 1)(zero) == ~std::uint64_t{0});
  CHECK(SimHash(64, 12, 1)(minus_zero) == ~std::uint64_t{0});
  CHECK(SimHash(4, 12, 1)(zero) == 15);
}

TEST_CASE("a longer code begins with the bits of a shorter one, a bit is the sign of a projection") {
  for (std::uint64_t key = 0; key < 20; ++key) {
    const std::vector<float> x = noise(33, key + 1000);
    const std::uint64_t whole = SimHash(64, 33, key)(x);
    for (std::size_t bits = 1; bits < 64; ++bits) {
      CHECK(SimHash(bits, 33, key)(x) == (whole & ((std::uint64_t{1} << bits) - 1)));
      double projection = 0;
      for (std::size_t c = 0; c < x.size(); ++c)
        projection += static_cast<double>(x[c]) * normal(combine({key, bits, c}));
      CHECK((whole >> bits & 1) == (projection >= 0 ? 1 : 0));
    }
  }
}

TEST_CASE("opposite vectors have complementary codes, a positive factor changes nothing") {
  std::vector<float> x = noise(16, 5), minus = x, twice = x;
  for (float& c : minus) c = -c;
  for (float& c : twice) c *= 2;
  const SimHash hash(64, 16, 9);
  CHECK(hash(minus) == ~hash(x));
  CHECK(hash(twice) == hash(x));
}

TEST_CASE("the farthest code is what a plain search finds") {
  std::uint64_t draws = 0;
  const auto below = [&](std::uint64_t n) { return mix(draws++) % n; };
  for (const std::size_t n : {0U, 1U, 2U, 7U, 64U, 511U, 512U, 513U, 1300U}) {
    for (int round = 0; round < 12; ++round) {
      // Few distinct codes make ties; positions are a shuffled ascending list with gaps.
      const std::uint64_t mask = round % 3 == 0 ? ~std::uint64_t{0} : round % 3 == 1 ? 0xf : 1;
      std::vector<std::uint64_t> codes(n), query(1 + round % 4);
      for (std::uint64_t& code : codes) code = mix(draws++) & mask;
      for (std::uint64_t& code : query) code = mix(draws++) & mask;
      std::vector<Position> positions(n);
      for (std::size_t i = 0; i < n; ++i) positions[i] = static_cast<Position>(2 * i + below(2));
      for (std::size_t i = n; i > 1; --i) std::swap(positions[i - 1], positions[below(i)]);
      const Choosable choosable{static_cast<Position>(below(5)),
                                static_cast<Position>(2 * n) - static_cast<Position>(below(9))};
      for (const Group group : {Group::mean, Group::max}) {
        for (const Tie tie : {Tie::slot, Tie::oldest, Tie::newest}) {
          std::size_t expected = n;
          int most = -1;
          for (std::size_t slot = 0; slot < n; ++slot) {
            if (positions[slot] < choosable.first || positions[slot] >= choosable.last) continue;
            int sum = 0, nearest = 64;
            for (const std::uint64_t code : query) {
              sum += std::popcount(codes[slot] ^ code);
              nearest = std::min(nearest, std::popcount(codes[slot] ^ code));
            }
            const int distance = group == Group::mean ? sum : nearest;
            const bool preferred = tie == Tie::oldest   ? positions[slot] < positions[expected % n]
                                   : tie == Tie::newest ? positions[slot] > positions[expected % n]
                                                        : false;
            if (distance < most || (distance == most && !preferred)) continue;
            most = distance;
            expected = slot;
          }
          CAPTURE(n, round, query.size());
          CHECK(farthest(codes, positions, {query, group}, choosable, tie) == expected);
        }
      }
    }
  }
}

TEST_CASE("no slot is chosen when all are protected") {
  const std::vector<std::uint64_t> codes = {1, 2, 3}, query = {0};
  const std::vector<Position> positions = {0, 1, 2};
  CHECK(farthest(codes, positions, {query}, {3, 9}, Tie::slot) == 3);
  CHECK(farthest(codes, positions, {query}, {0, -4}, Tie::oldest) == 3);
  // Equal codes, distance 0, may be evicted all the same.
  CHECK(farthest(std::vector<std::uint64_t>{0, 0, 0}, positions, {query}, {0, 3}, Tie::slot) == 0);
}

}  // namespace kvsim::policy::test_sim_hash
