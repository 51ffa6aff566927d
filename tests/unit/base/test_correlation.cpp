#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "sim/base/spread.hpp"

namespace kvsim::test_correlation {

TEST_CASE("Pearson's correlation, worked by hand") {
  const auto r = [](const std::vector<double>& x, const std::vector<double>& y) {
    return kvsim::pearson(x, y);
  };
  CHECK(*r({1, 2, 3}, {10, 20, 30}) == Approx(1));
  CHECK(*r({1, 2, 3}, {3, 2, 1}) == Approx(-1));
  // Deviations -1 0 1 and -1 2 -1: sum of products 0.
  CHECK(*r({1, 2, 3}, {0, 3, 0}) == Approx(0).margin(1e-12));
  // Deviations -1.5 -.5 .5 1.5 and -.5 -.5 -.5 1.5: products 3, squares 5 and 3.
  CHECK(*r({1, 2, 3, 4}, {0, 0, 0, 2}) == Approx(3 / std::sqrt(15.0)));
  CHECK_FALSE(r({1, 1, 1}, {1, 2, 3}));
  CHECK_FALSE(r({1, 2, 3}, {0.1, 0.1, 0.1}));
  CHECK_FALSE(r({1}, {2}));
  CHECK_FALSE(r({}, {}));
  CHECK_FALSE(r({1, 1 + 1e-200, 5e-324}, {0, 0, 5e-324}));
}

}  // namespace kvsim::test_correlation
