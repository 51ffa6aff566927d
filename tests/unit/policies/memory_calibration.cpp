#include "tests/unit/policies/memory_calibration.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::test {

MemoryCalibration::MemoryCalibration(const std::string& codec, const NoiseRuns& shape) : shape_(shape) {
  const bool eviction = builtin().find_policy(Kind::eviction, codec.substr(0, codec.find('('))) != nullptr;
  const Composition composition = parse_composition((eviction ? "" : "full+") + with_file(codec), builtin());
  const Part part = eviction                     ? composition.eviction
                    : composition.representation ? *composition.representation
                                                 : *composition.selection;
  CacheUnit unit;
  unit.n_lanes = static_cast<int>(shape.n_lanes);
  unit.group = static_cast<int>(shape.group);
  unit.head_dim = unit.value_dim = static_cast<int>(shape.dim);
  const auto calibrator = part.spec->make_calibrator(part.params, unit);
  std::mt19937 random(static_cast<std::uint32_t>(shape.seed));
  std::normal_distribution<float> normal;
  for (std::size_t run = 0; run < shape.runs; ++run) {
    std::vector<float>&keys = keys_.emplace_back(), &values = values_.emplace_back();
    // Channels differ in size and place, so that a table of one is not that of another.
    for (std::size_t i = 0; i < shape.n_lanes * shape.tokens * shape.dim; ++i) {
      const auto channel = static_cast<float>(i % shape.dim);
      keys.push_back((1 + channel) * normal(random) + channel);
      values.push_back((2 + channel) * normal(random) - channel);
    }
    LayerTokens tokens;
    tokens.rotary.inv_freq = shape_.inv_freq;
    for (std::size_t lane = 0; lane < shape.n_lanes; ++lane) {
      const std::size_t first = lane * shape.tokens * shape.dim;
      tokens.keys.push_back({keys.data() + first, shape.tokens, shape.dim, shape.dim});
      tokens.values.push_back({values.data() + first, shape.tokens, shape.dim, shape.dim});
    }
    if (calibrator->needs_queries()) {
      std::vector<float>& queries = queries_.emplace_back();
      for (std::size_t i = 0; i < shape.n_lanes * shape.group * shape.tokens * shape.dim; ++i)
        queries.push_back(static_cast<float>(1 + i % shape.dim * 3 % shape.dim) * normal(random));
      for (std::size_t head = 0; head < shape.n_lanes * shape.group; ++head)
        tokens.queries.push_back(
            {queries.data() + head * shape.tokens * shape.dim, shape.tokens, shape.dim, shape.dim});
    }
    calibrator->observe(tokens);
  }
  for (CalibratedTable& table : calibrator->tables()) tables_[table.name] = std::move(table.of_head);
}

std::vector<float> MemoryCalibration::row(std::string_view file, std::string_view, int, int) const {
  bug("a codec asks for a dataset", std::string(file));
}

std::vector<std::vector<double>> MemoryCalibration::matrix(std::string_view file) const {
  bug("a codec asks for a matrix", std::string(file));
}

std::vector<float> MemoryCalibration::calibrated(const CalibrationRequest& request, std::string_view table,
                                                 int /*layer*/, int kv_head) const {
  const auto found = tables_.find(table);
  if (found == tables_.end()) input_error("is not there: " + std::string(table), request.file);
  return found->second.at(static_cast<std::size_t>(kv_head));
}

std::vector<float> MemoryCalibration::of_head(std::string_view file, std::string_view dataset, int /*layer*/,
                                              int kv_head, std::span<const std::size_t> dims) const {
  const auto found = tables_.find(dataset);
  if (found == tables_.end()) input_error("is not there: " + std::string(dataset), std::string(file));
  const std::vector<float>& out = found->second.at(static_cast<std::size_t>(kv_head));
  std::size_t numbers = 1, other = out.size();
  for (const std::size_t dim : dims) {
    if (dim == kPositions) continue;
    numbers *= dim;
    other /= dim;
  }
  const bool by_position = std::ranges::find(dims, kPositions) != dims.end();
  if (numbers * (by_position ? other : 1) != out.size())
    input_error("has another shape: " + std::string(dataset), std::string(file));
  return out;
}

float MemoryCalibration::key(std::size_t run, std::size_t token, std::size_t lane,
                             std::size_t channel) const {
  return keys_[run][(lane * shape_.tokens + token) * shape_.dim + channel];
}

float MemoryCalibration::value(std::size_t run, std::size_t token, std::size_t lane,
                               std::size_t channel) const {
  return values_[run][(lane * shape_.tokens + token) * shape_.dim + channel];
}

float MemoryCalibration::query(std::size_t run, std::size_t token, std::size_t query_head,
                               std::size_t channel) const {
  return queries_[run][(query_head * shape_.tokens + token) * shape_.dim + channel];
}

std::string with_file(const std::string& codec) {
  const std::size_t open = codec.find('(');
  if (open == std::string::npos) return codec + "(file=x)";
  return codec.substr(0, open) + "(file=x," + codec.substr(open + 1);
}

std::vector<double> slow_eigenvectors(std::span<const double> matrix, std::size_t n) {
  std::vector<double> a(matrix.begin(), matrix.end()), vectors(n * n);
  for (std::size_t i = 0; i < n; ++i) vectors[i * n + i] = 1;
  for (int sweep = 0; sweep < 60; ++sweep)
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) continue;
        const double angle = std::atan2(2 * a[p * n + q], a[q * n + q] - a[p * n + p]) / 2;
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a[k * n + p], y = a[k * n + q];
          a[k * n + p] = c * x - s * y;
          a[k * n + q] = s * x + c * y;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a[p * n + k], y = a[q * n + k];
          a[p * n + k] = c * x - s * y;
          a[q * n + k] = s * x + c * y;
          const double u = vectors[p * n + k], v = vectors[q * n + k];
          vectors[p * n + k] = c * u - s * v;
          vectors[q * n + k] = s * u + c * v;
        }
      }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return a[i * n + i]; });
  std::vector<double> out;
  for (const std::size_t i : order) {
    const auto row = std::span(vectors).subspan(i * n, n);
    const double largest = *std::ranges::max_element(row, {}, [](double x) { return std::fabs(x); });
    for (const double x : row) out.push_back(largest < 0 ? -x : x);
  }
  return out;
}

}  // namespace kvsim::policy::test
