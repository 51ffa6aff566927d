// Compares products and attention on the device with their definitions in double.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tests/unit/cuda/on_device.hpp"
#include "traces/model/cuda/device_attention.hpp"

namespace kvsim::model::cuda {
namespace {

double largest_difference(const std::vector<float>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(double{found[i]} - expected[i]);
    if (!(difference <= largest)) largest = difference;  // NaN, too
  }
  return largest;
}

/// x [n, in] W^T in double.
std::vector<double> slow_linear(const std::vector<float>& x, const std::vector<float>& w, std::size_t in) {
  const std::size_t n = x.size() / in, out = w.size() / in;
  std::vector<double> y(n * out, 0.0);
  for (std::size_t row = 0; row < n; ++row)
    for (std::size_t column = 0; column < out; ++column)
      for (std::size_t i = 0; i < in; ++i)
        y[row * out + column] += double{x[row * in + i]} * double{w[column * in + i]};
  return y;
}

struct Shape {
  std::uint32_t heads, kv_heads, dim;
  std::int64_t window;
  std::uint64_t past, n, capacity;
  std::uint64_t first_observed;
};

/// Attention by its definition: out [n, heads * dim], p [heads, n, past + n].
struct SlowAttention {
  SlowAttention(const Shape& s, const std::vector<float>& q, const std::vector<float>& k,
                const std::vector<float>& v) {
    const std::uint64_t keys = s.past + s.n;
    out.resize(s.n * s.heads * s.dim, 0.0);
    p.resize(s.heads * s.n * keys, 0.0);
    for (std::uint64_t head = 0; head < s.heads; ++head) {
      const std::uint64_t kv = head / (s.heads / s.kv_heads) * s.capacity;
      for (std::uint64_t t = 0; t < s.n; ++t) {
        double* row = p.data() + (head * s.n + t) * keys;
        const auto position = static_cast<std::int64_t>(s.past + t);
        double sum = 0;
        for (std::uint64_t j = 0; j < keys; ++j) {
          const auto key = static_cast<std::int64_t>(j);
          if (key > position || (s.window >= 0 && key <= position - s.window)) continue;
          double dot = 0;
          for (std::uint64_t c = 0; c < s.dim; ++c)
            dot += double{q[(head * s.n + t) * s.dim + c]} * double{k[(kv + j) * s.dim + c]};
          sum += row[j] = std::exp(dot / std::sqrt(static_cast<double>(s.dim)));
        }
        for (std::uint64_t j = 0; j < keys; ++j) {
          row[j] /= sum;
          for (std::uint64_t c = 0; c < s.dim; ++c)
            out[(t * s.heads + head) * s.dim + c] += row[j] * double{v[(kv + j) * s.dim + c]};
        }
      }
    }
  }
  std::vector<double> out, p;
};

/// The result of the device, and the rows it passes to the observer.
template <class T>
struct OnDevice {
  std::vector<float> out;
  std::vector<float> p;  // [heads, n, past + n]; NaN where no row was observed
  std::vector<double> sum, sum_squares;
  std::vector<std::uint64_t> blocks;  // rows of each observed block

  OnDevice(const Shape& s, const std::vector<float>& q, const std::vector<float>& k,
           const std::vector<float>& v, std::uint64_t workspace) {
    const Stream stream;
    MatrixProduct product(stream);
    DeviceAttention<T> attention(s.heads, s.dim, s.past + s.n, workspace);
    const auto q_there = on_device(all_as<T>(q), stream), k_there = on_device(all_as<T>(k), stream);
    const auto v_there = on_device(all_as<T>(v), stream);
    const DeviceArray<T> out_there(s.n * s.heads * s.dim, "out");
    const DeviceArray<double> sums(2 * s.heads * s.capacity, "sums");
    zero(sums.data(), sums.size() * sizeof(double), stream);
    const ColumnSums columns{sums.data(), sums.data() + s.heads * s.capacity, s.capacity};
    const DeviceAttentionInput<T> input{s.heads, s.kv_heads,     s.dim,          s.window,       s.past,
                                        s.n,     q_there.data(), k_there.data(), v_there.data(), s.capacity};
    p.assign(s.heads * s.n * (s.past + s.n), NAN);
    attention.attend(
        product, stream, input, out_there.data(), s.first_observed,
        [&](const AttentionRows& rows) {
          blocks.push_back(rows.rows);
          const std::vector<float> block = from_device(rows.p, s.heads * rows.rows * rows.pitch, stream);
          for (std::uint64_t head = 0; head < s.heads; ++head) {
            for (std::uint64_t row = 0; row < rows.rows; ++row) {
              float* to = p.data() + (head * s.n + rows.first_position - s.past + row) * (s.past + s.n);
              std::fill_n(to, s.past + s.n, 0.0F);
              std::copy_n(block.data() + (head * rows.rows + row) * rows.pitch, rows.keys,
                          to + rows.first_key);
            }
          }
        },
        columns);
    out = values_of(from_device(out_there, stream));
    sum = from_device(columns.sum, s.heads * s.capacity, stream);
    sum_squares = from_device(columns.sum_squares, s.heads * s.capacity, stream);
  }
};

template <class T>
std::vector<float> representable(std::size_t count, std::uint64_t seed) {
  return values_of(all_as<T>(random_floats(count, seed)));
}

}  // namespace

TEST_CASE("linear layers, replacing and adding, in every pair of types") {
  const Stream stream;
  MatrixProduct product(stream);
  const std::uint64_t n = 5, in = 40, out = 24;
  const std::vector<float> x = representable<Bf16>(n * in, 1), w = representable<Bf16>(out * in, 2),
                           before = representable<Bf16>(n * out, 3);
  std::vector<double> expected = slow_linear(x, w, in), expected_sum = expected;
  for (std::size_t i = 0; i < expected.size(); ++i) expected_sum[i] += double{before[i]};

  const auto x_there = on_device(x, stream), w_there = on_device(w, stream), y = on_device(before, stream);
  product.linear(x_there.data(), n, in, w_there.data(), out, y.data(), Result::added_to);
  CHECK(largest_difference(from_device(y, stream), expected_sum) < 1e-4);
  product.linear(x_there.data(), n, in, w_there.data(), out, y.data());
  CHECK(largest_difference(from_device(y, stream), expected) < 1e-4);

  const auto x_half = on_device(all_as<Bf16>(x), stream), w_half = on_device(all_as<Bf16>(w), stream);
  product.linear(x_half.data(), n, in, w_half.data(), out, y.data());
  CHECK(largest_difference(from_device(y, stream), expected) < 1e-4);  // products of bf16 are exact
  const auto y_half = on_device(all_as<Bf16>(before), stream);
  product.linear(x_half.data(), n, in, w_half.data(), out, y_half.data(), Result::added_to);
  const std::vector<float> added = values_of(from_device(y_half, stream));
  for (std::size_t i = 0; i < added.size(); ++i)
    CHECK(std::abs(double{added[i]} - expected_sum[i]) <= std::abs(expected_sum[i]) * 0x1p-8 + 1e-6);
}

TEST_CASE("attention in blocks: output, rows, columns") {
  const auto shape = GENERATE(Shape{4, 2, 16, -1, 0, 23, 23, 0}, Shape{4, 2, 16, -1, 30, 23, 64, 20},
                              Shape{6, 2, 8, 5, 11, 40, 60, 17}, Shape{2, 2, 24, 1, 0, 9, 9, 3},
                              Shape{8, 2, 16, -1, 77, 1, 80, 0}, Shape{8, 4, 16, 10, 77, 1, 80, 0},
                              Shape{4, 1, 16, -1, 3, 300, 303, 300}, Shape{2, 1, 16, 1000, 0, 260, 260, 259},
                              Shape{5, 1, 8, 12, 9, 50, 64, 23}, Shape{3, 3, 40, -1, 7, 60, 70, 31});
  // The workspace has room for the most queries a block may have, for some, or for a single one.
  const std::uint64_t queries = GENERATE(512U, 7U, 1U);
  const Shape& s = shape;
  const std::uint64_t keys = s.past + s.n;
  const std::vector<float> q = representable<Bf16>(s.heads * s.n * s.dim, 4),
                           k = representable<Bf16>(s.kv_heads * s.capacity * s.dim, 5),
                           v = representable<Bf16>(s.kv_heads * s.capacity * s.dim, 6);
  const SlowAttention slow(s, q, k, v);
  const auto check = [&](const auto& found, double tolerance) {
    CHECK(largest_difference(found.out, slow.out) < tolerance);
    std::vector<double> sum(s.heads * s.capacity, 0.0), sum_squares(sum.size(), 0.0);
    std::vector<float> shown;
    std::vector<double> to_show;
    std::uint64_t shown_too_early = 0;
    for (std::uint64_t row = 0; row < s.heads * s.n; ++row) {
      const bool observed = row % s.n >= s.first_observed;
      for (std::uint64_t j = 0; j < keys; ++j) {
        const double p = slow.p[row * keys + j];
        sum[row / s.n * s.capacity + j] += p;
        sum_squares[row / s.n * s.capacity + j] += p * p;
        if (observed) {
          shown.push_back(found.p[row * keys + j]);
          to_show.push_back(p);
        } else if (!std::isnan(found.p[row * keys + j])) {
          ++shown_too_early;
        }
      }
    }
    CHECK(shown_too_early == 0);
    CHECK(largest_difference(shown, to_show) < 2e-6);
    CHECK(largest_difference({found.sum.begin(), found.sum.end()}, sum) < 1e-5);
    CHECK(largest_difference({found.sum_squares.begin(), found.sum_squares.end()}, sum_squares) < 1e-5);
  };
  const OnDevice<float> in_float(s, q, k, v,
                                 DeviceAttention<float>::bytes_of_block(s.heads, s.dim, queries, keys));
  const OnDevice<Bf16> in_bf16(s, q, k, v,
                               DeviceAttention<Bf16>::bytes_of_block(s.heads, s.dim, queries, keys));
  check(in_float, 5e-6);
  check(in_bf16, 0x1p-6);
  for (const auto* blocks : {&in_float.blocks, &in_bf16.blocks})
    CHECK(std::accumulate(blocks->begin(), blocks->end(), std::uint64_t{0}) == s.n - s.first_observed);
}

TEST_CASE("a block has no more queries than the most, and none from before the first observed one") {
  const Shape s{2, 1, 8, -1, 5, 600, 605, 50};
  const std::vector<float> q = random_floats(s.heads * s.n * s.dim, 7),
                           k = random_floats(s.capacity * s.dim, 8);
  const OnDevice<float> found(s, q, k, k, std::uint64_t{1} << 24);
  CHECK(found.blocks == std::vector<std::uint64_t>{DeviceAttention<float>::kMostQueries, 38});
  CHECK(largest_difference(found.out, SlowAttention(s, q, k, k).out) < 5e-6);
}

TEST_CASE("scores never need more than the workspace, or than a single query") {
  // 4 heads, 1000 keys: the scores of a query take 16000 bytes, the query and what it attends to 256. 64000
  // bytes hold three of them.
  const Shape s{4, 4, 8, -1, 990, 10, 1000, 0};
  const std::vector<float> q = random_floats(s.heads * s.n * s.dim, 7),
                           k = random_floats(s.heads * 1000 * s.dim, 8);
  const OnDevice<float> found(s, q, k, k, 64000);
  for (const std::uint64_t rows : found.blocks) CHECK(rows <= 3);
  const OnDevice<float> single(s, q, k, k, 1);
  CHECK(single.blocks == std::vector<std::uint64_t>(10, 1));
  CHECK(largest_difference(single.out, {found.out.begin(), found.out.end()}) < 1e-6);
  // cuBLAS may choose another kernel for blocks of another size.
  CHECK(largest_difference({single.sum.begin(), single.sum.end()}, found.sum) < 1e-5);
}

}  // namespace kvsim::model::cuda
