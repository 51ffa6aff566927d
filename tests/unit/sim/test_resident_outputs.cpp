// Tests the outputs over resident positions against the sum written out.
#include <catch2/catch.hpp>

#include "sim/attention/resident_outputs.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::test_resident_outputs {
namespace {

constexpr std::size_t kPositions = 90, kHeads = 2, kSteps = 5, kDim = 3, kRows = kHeads * kSteps;
constexpr std::uint32_t kFirst = 11;  // steps 11 .. 15
constexpr std::uint32_t kForever = 0xffffffffU;

struct Numbers {
  std::vector<float> attention, values;

  Numbers() : attention(kPositions * kRows), values(kPositions * kDim) {
    for (std::size_t i = 0; i < attention.size(); ++i)
      attention[i] = static_cast<float>(uniform01(combine({1, i})));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(normal(combine({2, i})));
    // A token of the block is not attended before its own step.
    for (std::size_t s = 0; s < kSteps; ++s)
      for (std::size_t r = 0; r < kRows; ++r)
        if (r % kSteps < s) attention[(kPositions - kSteps + s) * kRows + r] = 0;
  }
  sim::AttendedBlock block() const {
    return {{attention.data(), kPositions, kRows, kRows},
            {values.data(), kPositions, kDim, kDim},
            kFirst,
            kSteps};
  }
  /// Returns component `d` of the output of row `r` over the positions for which `held` is true, divided by
  /// their mass.
  template <class Held>
  double output(std::size_t r, std::size_t d, Held held) const {
    double sum = 0, mass = 0;
    for (std::size_t j = 0; j < kPositions; ++j) {
      if (!held(j)) continue;
      mass += static_cast<double>(attention[j * kRows + r]);
      sum += static_cast<double>(attention[j * kRows + r]) * values[j * kDim + d];
    }
    return mass > 0 ? sum / mass : 0;
  }
};

}  // namespace

TEST_CASE("outputs over resident positions are the sum over them divided by their mass") {
  const Numbers numbers;
  sim::ResidentOutputs outputs;
  outputs.begin(numbers.block());
  std::vector<float> difference;
  // From cells in which almost nothing is resident to cells that evict almost nothing.
  for (std::size_t c = 0; c <= kPositions; c += 3) {
    std::vector<sim::ResidentInterval> stays;
    for (std::size_t j = 0; j < c; ++j) {
      const std::uint64_t draw = mix(combine({3, c, j})) % 12;
      const auto position = static_cast<std::int32_t>(j);
      if (draw == 0)
        stays.push_back({position, 0, 13});  // evicted within the block
      else if (draw == 1)
        stays.push_back({position, 14, 99});  // admitted within the block
      else if (draw == 2)
        stays.push_back({position, 12, 14});  // both
      else if (draw > 3)
        stays.push_back({position, 0, kForever});
    }
    if (c == kPositions) {
      stays.clear();
      for (std::size_t j = 0; j + 1 < kPositions; ++j)
        stays.push_back({static_cast<std::int32_t>(j), j + kSteps < kPositions ? 0U : 11U, kForever});
    }
    outputs.difference(numbers.block(), stays, difference);
    const auto mass = [&](std::size_t r, auto counts) {
      double sum = 0;
      for (std::size_t j = 0; j < kPositions; ++j) sum += counts(j) ? numbers.attention[j * kRows + r] : 0.0F;
      return sum;
    };
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::uint32_t step = kFirst + static_cast<std::uint32_t>(r % kSteps);
      const auto held = [&](std::size_t j) {
        return std::any_of(stays.begin(), stays.end(), [&](const sim::ResidentInterval& stay) {
          return static_cast<std::size_t>(stay.position) == j && stay.first <= step && step < stay.last;
        });
      };
      const auto all = [](std::size_t) { return true; };
      REQUIRE(outputs.evicted()[r] == Approx(1 - mass(r, held) / mass(r, all)).margin(1e-5));
      for (std::size_t d = 0; d < kDim; ++d) {
        const double whole = numbers.output(r, d, all);
        REQUIRE(outputs.whole()[r * kDim + d] == Approx(whole).margin(1e-5));
        REQUIRE(difference[r * kDim + d] == Approx(numbers.output(r, d, held) - whole).margin(2e-5));
      }
    }
  }
}

TEST_CASE("a cell that evicts nothing has a difference of exactly 0") {
  const Numbers numbers;
  sim::ResidentOutputs outputs;
  outputs.begin(numbers.block());
  std::vector<sim::ResidentInterval> stays;
  for (std::size_t j = 0; j < kPositions; ++j)
    stays.push_back(
        {static_cast<std::int32_t>(j),
         j + kSteps < kPositions ? 0 : static_cast<std::uint32_t>(kFirst + j + kSteps - kPositions),
         kForever});
  std::vector<float> difference;
  outputs.difference(numbers.block(), stays, difference);
  for (const float x : difference) CHECK(x == 0);
}

TEST_CASE("distances between outputs, by hand") {
  const float whole[] = {3, 4}, minus[] = {-3, 0}, nothing[] = {0, 0};
  const sim::OutputDistance moved = sim::output_distance(whole, minus, 2);  // (0, 4) instead of (3, 4)
  CHECK(moved.error == Approx(0.6));
  CHECK(moved.cosine == Approx(0.8));
  // (3, 4) is half of (0, 4) and half of (6, 4), or a quarter of (0, 4) and three of (4, 4).
  CHECK(moved.evicted_cosine(0.5) == Approx(4 / std::sqrt(52.0)));
  CHECK(moved.evicted_cosine(0.75) == Approx(std::sqrt(0.5)));
  CHECK(sim::output_distance(whole, nothing, 2).error == 0);
  CHECK(sim::output_distance(whole, nothing, 2).cosine == Approx(1));
  CHECK(sim::output_distance(nothing, nothing, 2).error == 0);
  CHECK(sim::output_distance(nothing, nothing, 2).cosine == 1);
  CHECK(sim::output_distance(nothing, whole, 2).error == 1);
  CHECK(sim::output_distance(nothing, whole, 2).cosine == 0);
}

}  // namespace kvsim::test_resident_outputs
