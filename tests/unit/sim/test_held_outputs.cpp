// Outputs over what cells held, against the sum written out.
#include <catch2/catch.hpp>

#include "sim/base/rng.hpp"
#include "sim/held_outputs.hpp"

using namespace kvsim;

TEST_CASE("outputs over held positions are the sum over them, however cells share") {
  constexpr std::size_t kPositions = 90, kHeads = 2, kSteps = 5, kDim = 3, kRows = kHeads * kSteps,
                        kCells = 70;
  constexpr std::uint32_t kFirst = 11;  // steps 11 .. 15
  std::vector<float> attention(kPositions * kRows), values(kPositions * kDim);
  for (std::size_t i = 0; i < attention.size(); ++i)
    attention[i] = static_cast<float>(uniform01(combine({1, i})));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(normal(combine({2, i})));

  // Budgets are prefixes of the positions, and every cell has some that come late or leave early.
  std::vector<std::vector<sim::Residency>> stays(kCells);
  for (std::size_t c = 0; c < kCells; ++c)
    for (std::size_t j = 0; j < 20 + c; ++j) {
      const std::uint64_t draw = mix(combine({3, c, j})) % 12;
      const auto position = static_cast<std::int32_t>(j);
      if (draw == 0)
        stays[c].push_back({position, 0, 13});  // leaves
      else if (draw == 1)
        stays[c].push_back({position, 14, 99});  // comes
      else if (draw == 2)
        stays[c].push_back({position, 12, 14});  // both
      else if (draw > 3)
        stays[c].push_back({position, 0, 0xffffffffU});
    }
  const std::vector<std::span<const sim::Residency>> views(stays.begin(), stays.end());
  std::vector<std::vector<float>> out;
  sim::HeldOutputs outputs;
  outputs.compute(
      {{attention.data(), kPositions, kRows, kRows}, {values.data(), kPositions, kDim, kDim}, kFirst, kSteps},
      views, out);
  REQUIRE(out.size() == kCells);
  for (std::size_t c = 0; c < kCells; ++c)
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t d = 0; d < kDim; ++d) {
        const std::uint32_t step = kFirst + static_cast<std::uint32_t>(r % kSteps);
        double expected = 0;
        for (const sim::Residency& stay : stays[c])
          if (stay.first <= step && step < stay.last) {
            const auto j = static_cast<std::size_t>(stay.position);
            expected += static_cast<double>(attention[j * kRows + r]) * values[j * kDim + d];
          }
        REQUIRE(out[c][r * kDim + d] == Approx(expected).margin(1e-4));
      }
}
