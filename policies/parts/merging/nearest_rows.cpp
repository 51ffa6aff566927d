#include "policies/parts/merging/nearest_rows.hpp"

#include <algorithm>
#include <numeric>

#include "policies/parts/rows/norms.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy {
UnitRows::UnitRows(MatrixView keys, std::span<const std::size_t> rows) : dim_(keys.cols) {
  numbers_.reserve(rows.size() * dim_);
  for (const std::size_t row : rows) {
    const double norm = euclidean_norm(keys.row(row));
    for (const float x : keys.row(row))
      numbers_.push_back(norm > 0 ? static_cast<float>(static_cast<double>(x) / norm) : 0);
  }
}

double UnitRows::cosine(std::size_t row, const UnitRows& other, std::size_t other_row) const {
  const float product = dot(numbers_.data() + row * dim_, other.numbers_.data() + other_row * dim_, dim_);
  return std::clamp(static_cast<double>(product), -1.0, 1.0);
}

std::vector<Nearest> nearest_by_cosine(const UnitRows& leaving, const UnitRows& staying) {
  std::vector<Nearest> out(leaving.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = {0, leaving.cosine(i, staying, 0)};
    for (std::size_t j = 1; j < staying.size(); ++j)
      if (const double cosine = leaving.cosine(i, staying, j); cosine > out[i].cosine) out[i] = {j, cosine};
  }
  return out;
}

std::vector<Nearest> nearest_by_product(const UnitRows& leaving_keys, const UnitRows& staying_keys,
                                        const UnitRows& leaving_values, const UnitRows& staying_values) {
  std::vector<Nearest> out(leaving_keys.size(), Nearest{kNowhere, 0});
  for (std::size_t i = 0; i < out.size(); ++i)
    for (std::size_t j = 0; j < staying_keys.size(); ++j) {
      const double of_keys = leaving_keys.cosine(i, staying_keys, j);
      if (!(of_keys > 0)) continue;
      const double product = of_keys * leaving_values.cosine(i, staying_values, j);
      if (out[i].index == kNowhere || product > out[i].cosine) out[i] = {j, product};
    }
  return out;
}

std::vector<std::size_t> nearest_by_position(std::span<const Position> leaving,
                                             std::span<const Position> staying) {
  return nearest_in_run(leaving, staying, {});
}

std::vector<std::size_t> nearest_in_run(std::span<const Position> leaving, std::span<const Position> staying,
                                        std::span<const std::size_t> run_of) {
  const std::vector<std::size_t> order = least_first(staying);
  const auto together = [&](Position a, Position b) {
    return run_of.empty() || run_of[static_cast<std::size_t>(a)] == run_of[static_cast<std::size_t>(b)];
  };
  std::vector<std::size_t> out;
  for (const Position position : leaving) {
    const auto after = std::lower_bound(order.begin(), order.end(), position,
                                        [&](std::size_t i, Position p) { return staying[i] < p; });
    std::size_t nearest = kNowhere;
    if (after != order.begin() && together(staying[*(after - 1)], position)) nearest = *(after - 1);
    if (after != order.end() && together(staying[*after], position) &&
        (nearest == kNowhere || staying[*after] - position < position - staying[nearest]))
      nearest = *after;
    out.push_back(nearest);
  }
  return out;
}

std::vector<std::size_t> runs_of(MatrixView keys, double above) {
  std::vector<std::size_t> out(keys.rows), every(keys.rows);
  std::iota(every.begin(), every.end(), std::size_t{0});
  const UnitRows rows(keys, every);
  for (std::size_t row = 1; row < out.size(); ++row)
    out[row] = out[row - 1] + (rows.cosine(row - 1, rows, row) > above ? 0 : 1);
  return out;
}

}  // namespace kvsim::policy
