// Compares each kernel with a plain implementation of its definition in double.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "sim/base/rng.hpp"
#include "traces/model/cpu/kernels.hpp"
#include "traces/model/cpu/linear_layer.hpp"
#include "traces/model/cpu/wide.hpp"
#include "traces/model/gguf_file.hpp"

namespace kvsim::model::cpu::test_kernels {
namespace {

std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(normal(combine({seed, i})));
  return values;
}

struct SlowAttention {
  std::vector<double> out;   // [n, heads * dim]
  std::vector<double> rows;  // [heads, n, past + n]
};

SlowAttention slow_attention(const AttentionInput& in) {
  const std::uint64_t total = in.past + in.n, dim = in.dim;
  const auto *keys = static_cast<const float*>(in.k), *values = static_cast<const float*>(in.v);
  SlowAttention slow{std::vector<double>(in.n * in.heads * dim),
                     std::vector<double>(in.heads * in.n * total)};
  for (std::uint64_t h = 0; h < in.heads; ++h) {
    const std::uint64_t kv = h * in.kv_heads / in.heads;
    for (std::uint64_t t = 0; t < in.n; ++t) {
      double* p = slow.rows.data() + (h * in.n + t) * total;
      double sum = 0;
      for (std::uint64_t j = 0; j < total; ++j) {
        const auto position = static_cast<std::int64_t>(in.past + t), key = static_cast<std::int64_t>(j);
        if (key > position || (in.window > 0 && key <= position - in.window)) continue;
        double dot = 0;
        for (std::uint64_t c = 0; c < dim; ++c)
          dot += double{in.q[(h * in.n + t) * dim + c]} * double{keys[(kv * in.capacity + j) * dim + c]};
        p[j] = std::exp(dot / std::sqrt(static_cast<double>(dim)));
        sum += p[j];
      }
      for (std::uint64_t j = 0; j < total; ++j) {
        p[j] /= sum;
        for (std::uint64_t c = 0; c < dim; ++c)
          slow.out[(t * in.heads + h) * dim + c] += p[j] * double{values[(kv * in.capacity + j) * dim + c]};
      }
    }
  }
  return slow;
}

}  // namespace

TEST_CASE("linear layers across tile edges, in every element type and alignment") {
  Workers workers(2);
  // From 8 tokens on the product uses tiles, of 16 tokens, 6 tokens or fewer, of up to 64 outputs and 32 or
  // 256 inputs. The shapes include more tokens than one task takes, and odd numbers of everything.
  struct Shape {
    std::uint64_t n, in, out;
  };
  for (const Shape& shape : {Shape{1, 24, 193}, Shape{7, 64, 95}, Shape{8, 1, 1}, Shape{16, 32, 64},
                             Shape{31, 257, 65}, Shape{14, 520, 20}, Shape{515, 33, 130}}) {
    const auto [n, in, out] = shape;
    const std::vector<float> x = random_floats(n * in, 1), w = random_floats(out * in, 2),
                             b = random_floats(out, 3);
    for (const Elem elem : {Elem::f32, Elem::f16, Elem::bf16}) {
      for (const std::size_t shift : {0, 1}) {
        std::vector<std::byte> stored(out * in * elem_bytes(elem) + shift);
        narrow(elem, w.data(), w.size(), stored.data() + shift);
        std::vector<float> rounded(w.size());
        widen(elem, stored.data() + shift, w.size(), rounded.data());
        const Linear linear{stored.data() + shift, elem, out, in, b};
        std::vector<float> y(n * out);
        apply_linear(workers, linear, x.data(), n, y.data());
        // Errors of float sums are random: over n terms they amount to about sqrt(n) roundings of the sum of
        // absolute values (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019), in any order of summation.
        double worst = 0;  // in units of this error
        for (std::uint64_t t = 0; t < n; ++t) {
          for (std::uint64_t o = 0; o < out; ++o) {
            double sum = double{b[o]}, size = std::abs(sum);
            for (std::uint64_t i = 0; i < in; ++i) {
              const double term = double{x[t * in + i]} * double{rounded[o * in + i]};
              sum += term;
              size += std::abs(term);
            }
            const double expected = std::sqrt(static_cast<double>(in + 1)) * 0x1p-24 * size;
            worst = std::max(worst, std::abs(sum - double{y[t * out + o]}) / expected);
          }
        }
        INFO(n << " tokens, " << in << " inputs, " << out << " outputs, " << elem_name(elem)
               << ", shifted by " << shift);
        CHECK(worst < 1);
      }
    }
  }
}

TEST_CASE("a product with packed weights is that with their floats, whatever else is in the batch") {
  const GgufFile golden(KVSIM_SOURCE_DIR "/tests/golden/gguf/types.gguf");
  Workers workers(2);
  const std::uint64_t in = 512;
  for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4"}) {
    const GgufTensor& two = golden.content.tensor(name);  // 2 rows
    const std::size_t row_bytes = two.data.size() / 2;
    for (const std::uint64_t out : {1U, 16U, 41U, 131U}) {
      INFO(name << ", " << out << " outputs");
      std::vector<std::byte> blocks(out * row_bytes);
      std::vector<float> w(out * in), row(in);
      for (std::uint64_t o = 0; o < out; ++o)
        std::copy_n(two.data.data() + (o * o / 3 % 2) * row_bytes, row_bytes, blocks.data() + o * row_bytes);
      widen_blocks(*two.type, blocks.data(), out * in / two.type->items, w.data());
      const std::vector<float> x = random_floats(21 * in, out), b = random_floats(out, 3);
      const auto packed = std::make_shared<const PackedWeights>(*two.type, blocks.data(), out, in);
      for (std::uint64_t o = 0; o < out; ++o) {
        packed->row(o, row.data());
        CHECK(std::memcmp(row.data(), w.data() + o * in, in * sizeof(float)) == 0);
      }
      const Linear quantised{nullptr, Elem::f32, out, in, b, packed};
      const Linear floats{reinterpret_cast<const std::byte*>(w.data()), Elem::f32, out, in, b};
      std::vector<float> wanted(21 * out), y(21 * out);
      apply_linear_alike(workers, floats, x.data(), 21, wanted.data());
      for (const std::uint64_t n : {1U, 2U, 3U, 4U, 5U, 8U, 21U}) {
        apply_linear(workers, quantised, x.data(), n, y.data());
        CHECK(std::memcmp(y.data(), wanted.data(), n * out * sizeof(float)) == 0);
        // Together with another one.
        std::vector<float> beside(n * out), expected(n * out);
        apply_linear(workers, floats, x.data(), n, expected.data());
        std::fill(y.begin(), y.end(), 0.0F);
        apply_linear(workers, {{&floats, beside.data()}, {&quantised, y.data()}}, x.data(), n);
        CHECK(std::memcmp(y.data(), wanted.data(), n * out * sizeof(float)) == 0);
        CHECK(beside == expected);
      }
    }
  }
}

TEST_CASE("linear layers give the same bits for any number of threads") {
  const std::uint64_t n = 70, in = 300, out = 200;
  const std::vector<float> x = random_floats(n * in, 1), w = random_floats(out * in, 2);
  for (const Elem elem : {Elem::f32, Elem::bf16}) {
    std::vector<std::byte> stored(out * in * elem_bytes(elem));
    narrow(elem, w.data(), w.size(), stored.data());
    const Linear linear{stored.data(), elem, out, in, {}};
    std::vector<std::vector<float>> y;
    for (const unsigned threads : {1U, 3U}) {
      Workers workers(threads);
      apply_linear(workers, linear, x.data(), n, y.emplace_back(n * out).data());
    }
    CHECK(y[0] == y[1]);
  }
}

TEST_CASE("e^x to one unit in the last place, and its limits") {
  double worst = 0;
  for (float x = -87.3F; x < 88.3F; x += 0.01F) {
    const double exact = std::exp(double{x});
    worst = std::max(worst, std::abs(double{exp_of(all_of(x))[0]} / exact - 1));
  }
  CHECK(worst < 1.2e-7);
  CHECK(exp_of(all_of(0.0F))[0] == 1);
  CHECK(exp_of(all_of(-std::numeric_limits<float>::infinity()))[0] == 0);
  CHECK(exp_of(all_of(-1000.0F))[0] == 0);
  CHECK(exp_of(all_of(1000.0F))[0] > 1e38F);
  CHECK(std::isnan(exp_of(all_of(std::numeric_limits<float>::quiet_NaN()))[0]));
}

TEST_CASE("squares are transposed") {
  std::vector<float> from(kWide * (kWide + 1)), to(kWide * (kWide + 2));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  transpose(from.data(), kWide + 1, to.data(), kWide + 2);
  bool same = true;
  for (std::size_t i = 0; i < kWide; ++i)
    for (std::size_t j = 0; j < kWide; ++j)
      same = same && to[j * (kWide + 2) + i] == from[i * (kWide + 1) + j];
  CHECK(same);
}

TEST_CASE("attention against its definition: groups, past, windows, blocks") {
  Workers workers(2);
  struct Shape {
    std::uint32_t heads, kv_heads;
    std::int32_t window;
    std::uint64_t past, n;
  };
  // Blocks are 64 queries; a window of 1 sees only its own token, of 65 more than a block, of 1000
  // everything.
  for (const Shape& shape : {Shape{4, 2, -1, 0, 70}, Shape{4, 1, -1, 33, 1}, Shape{2, 2, 1, 5, 66},
                             Shape{6, 3, 7, 20, 130}, Shape{2, 1, 65, 0, 129}, Shape{2, 1, 1000, 9, 64}}) {
    const std::uint32_t dim = 8;
    const std::uint64_t total = shape.past + shape.n, capacity = total + 3;
    const std::vector<float> q = random_floats(shape.heads * shape.n * dim, 4);
    const std::vector<float> k = random_floats(shape.kv_heads * capacity * dim, 5);
    const std::vector<float> v = random_floats(shape.kv_heads * capacity * dim, 6);
    const AttentionInput input{shape.heads, shape.kv_heads, dim,      shape.window, shape.past,
                               shape.n,     q.data(),       k.data(), v.data(),     capacity};
    const SlowAttention slow = slow_attention(input);
    for (const std::uint64_t first_observed : {std::uint64_t{0}, shape.n / 2, shape.n}) {
      std::vector<float> out(shape.n * shape.heads * dim);
      std::uint64_t next = first_observed;
      double worst_row = 0;
      attend(workers, input, out.data(), first_observed,
             [&](std::uint64_t row, std::uint64_t first_key, std::uint64_t n_keys, std::span<const float> p) {
               REQUIRE(row == next++);
               const std::uint64_t position = shape.past + row;
               const auto window = static_cast<std::uint64_t>(shape.window);
               CHECK(first_key == (shape.window > 0 && position >= window ? position - window + 1 : 0));
               CHECK(first_key + n_keys == position + 1);
               REQUIRE(p.size() == shape.heads * n_keys);
               for (std::uint64_t h = 0; h < shape.heads; ++h) {
                 for (std::uint64_t j = 0; j < n_keys; ++j) {
                   const double expected = slow.rows[(h * shape.n + row) * total + first_key + j];
                   worst_row = std::max(worst_row, std::abs(expected - double{p[h * n_keys + j]}));
                 }
               }
             });
      CHECK(next == shape.n);
      CHECK(worst_row < 1e-6);
      double worst = 0;
      for (std::size_t i = 0; i < out.size(); ++i)
        worst = std::max(worst, std::abs(slow.out[i] - double{out[i]}));
      INFO("window " << shape.window << ", past " << shape.past << ", n " << shape.n);
      CHECK(worst < 2e-6);
    }
  }
}

TEST_CASE("a token alone attends with the bits that it has beside a later one") {
  Workers workers(2);
  const std::uint32_t kv_heads = 2;
  for (const std::uint32_t dim : {20U, 64U, 80U})
    for (const std::uint32_t group : {1U, 2U, 3U, 4U, 7U, 9U, 17U})
      for (const std::uint64_t past : {0U, 5U, 31U, 300U, 1000U})
        for (const std::int32_t window : {-1, 1, 40, 600}) {
          const std::uint32_t heads = kv_heads * group;
          const std::uint64_t capacity = past + 5;
          const std::vector<float> both = random_floats(heads * 2 * dim, 4),
                                   k = random_floats(kv_heads * capacity * dim, 5),
                                   v = random_floats(kv_heads * capacity * dim, 6);
          std::vector<float> alone, rows[2], out[2];
          for (std::uint32_t head = 0; head < heads; ++head)
            alone.insert(alone.end(), both.begin() + head * 2 * dim, both.begin() + (head * 2 + 1) * dim);
          std::vector<double> sums[2], squares[2];
          for (const std::uint64_t n : {1U, 2U}) {
            out[n - 1].resize(n * heads * dim);
            for (std::vector<double>* of : {&sums[n - 1], &squares[n - 1]}) of->resize(heads * capacity);
            attend(
                workers,
                {heads, kv_heads, dim, window, past, n, n == 1 ? alone.data() : both.data(), k.data(),
                 v.data(), capacity},
                out[n - 1].data(), 0,
                [&](std::uint64_t row, std::uint64_t, std::uint64_t, std::span<const float> p) {
                  if (row == 0) rows[n - 1].assign(p.begin(), p.end());
                },
                n == 1 ? ColumnSums{sums[0].data(), squares[0].data(), capacity} : ColumnSums{});
          }
          INFO("dim " << dim << ", group " << group << ", past " << past << ", window " << window);
          REQUIRE(rows[0] == rows[1]);
          REQUIRE(out[0] == std::vector<float>(out[1].begin(), out[1].begin() + heads * dim));
          const std::uint64_t seen = rows[0].size() / heads;
          for (std::uint32_t head = 0; head < heads; ++head)
            for (std::uint64_t j = 0; j < seen; ++j) {
              const auto p = static_cast<double>(rows[0][head * seen + j]);
              const std::uint64_t at = head * capacity + past + 1 - seen + j;
              REQUIRE(sums[0][at] == p);
              REQUIRE(squares[0][at] == p * p);
            }
        }
}

TEST_CASE("a cache in 16 bits gives the bits of its floats, and any number of threads the same") {
  const std::uint32_t heads = 6, kv_heads = 2;
  for (const std::uint32_t dim : {24U, 64U})
    for (const Elem elem : {Elem::f16, Elem::bf16})
      for (const auto& [past, n] : {std::pair{0U, 1U}, {1500U, 1U}, {300U, 1U}, {40U, 90U}})
        for (const std::int32_t window : {-1, 700}) {
          const std::uint64_t capacity = past + n + 2;
          const std::vector<float> q = random_floats(heads * n * dim, 4),
                                   k = random_floats(kv_heads * capacity * dim, 5),
                                   v = random_floats(kv_heads * capacity * dim, 6);
          std::vector<std::uint16_t> stored_k(k.size()), stored_v(v.size());
          narrow(elem, k.data(), k.size(), stored_k.data());
          narrow(elem, v.data(), v.size(), stored_v.data());
          std::vector<float> wide_k(k.size()), wide_v(v.size());
          widen(elem, stored_k.data(), k.size(), wide_k.data());
          widen(elem, stored_v.data(), v.size(), wide_v.data());
          AttentionInput floats{heads, kv_heads, dim,           window,        past,
                                n,     q.data(), wide_k.data(), wide_v.data(), capacity};
          AttentionInput halves = floats;
          halves.k = stored_k.data();
          halves.v = stored_v.data();
          halves.elem = elem;
          std::vector<std::vector<float>> out;
          for (const unsigned threads : {1U, 3U})
            for (const AttentionInput& input : {floats, halves})
              for (const std::uint64_t first_observed : {std::uint64_t{n}, std::uint64_t{0}}) {
                Workers workers(threads);
                attend(workers, input, out.emplace_back(n * heads * dim).data(), first_observed,
                       [](auto...) {});
              }
          INFO("dim " << dim << ", " << elem_name(elem) << ", past " << past << ", n " << n << ", window "
                      << window);
          for (const std::vector<float>& each : out) REQUIRE(each == out[0]);
          const SlowAttention slow = slow_attention(floats);
          for (std::size_t i = 0; i < out[0].size(); ++i)
            REQUIRE(std::abs(slow.out[i] - double{out[0][i]}) < 2e-6);
        }
}

TEST_CASE("columns are sums over the rows that see a key, and add up over passes") {
  struct Shape {
    std::int32_t window;
    std::uint64_t first, second;  // tokens of two passes
  };
  for (const Shape& shape : {Shape{-1, 200, 0}, Shape{-1, 70, 131}, Shape{37, 130, 1}, Shape{1, 3, 64}}) {
    const std::uint32_t heads = 4, kv_heads = 2, dim = 8;
    const std::uint64_t total = shape.first + shape.second, capacity = total + 3;
    const std::vector<float> q = random_floats(heads * total * dim, 4);
    const std::vector<float> k = random_floats(kv_heads * capacity * dim, 5);
    const SlowAttention slow = slow_attention(
        {heads, kv_heads, dim, shape.window, 0, total, q.data(), k.data(), k.data(), capacity});
    std::vector<double> first_sum;
    for (const unsigned threads : {1U, 3U}) {
      Workers workers(threads);
      std::vector<double> sum(heads * capacity), squares(sum.size());
      for (std::uint64_t past = 0; past < total; past = shape.first) {
        const std::uint64_t n = past == 0 ? shape.first : shape.second;
        std::vector<float> own, out(n * heads * dim);
        for (std::uint64_t h = 0; h < heads; ++h) {
          const auto from = q.begin() + static_cast<std::ptrdiff_t>((h * total + past) * dim);
          own.insert(own.end(), from, from + static_cast<std::ptrdiff_t>(n * dim));
        }
        // Observed rows are counted, too.
        attend(workers,
               {heads, kv_heads, dim, shape.window, past, n, own.data(), k.data(), k.data(), capacity},
               out.data(), n - 1, [](auto...) {}, {sum.data(), squares.data(), capacity});
        if (past > 0) break;
      }
      for (std::uint64_t h = 0; h < heads; ++h) {
        double mass = 0;
        for (std::uint64_t j = 0; j < total; ++j) {
          double expected = 0, expected_squares = 0;
          for (std::uint64_t i = 0; i < total; ++i) {
            const double p = slow.rows[(h * total + i) * total + j];
            expected += p;
            expected_squares += p * p;
          }
          CHECK(sum[h * capacity + j] == Approx(expected).epsilon(1e-5));
          CHECK(squares[h * capacity + j] == Approx(expected_squares).epsilon(1e-5));
          mass += sum[h * capacity + j];
        }
        CHECK(mass == Approx(static_cast<double>(total)).epsilon(1e-6));
      }
      if (first_sum.empty()) first_sum = sum;
      CHECK(sum == first_sum);  // to the bit, for any number of threads
    }
  }
}

TEST_CASE("heads are normalised, rotated and rounded as computed by hand") {
  Workers workers(1);
  // One token at position 1, one head of 2: a quarter turn maps (1, 2) to (-2, 1).
  RopeTable quarter{1, {0.0F}, {1.0F}};
  const std::vector<float> x{1.0F, 2.0F};
  std::vector<float> y(2);
  split_heads(workers, {1, 2, {}, 0, &quarter, Elem::f32}, x.data(), 1, y.data());
  CHECK(y == std::vector<float>{-2.0F, 1.0F});
  // The norm comes first: (3, 4) has mean square 12.5.
  const std::vector<float> z{3.0F, 4.0F}, weight{1.0F, 2.0F};
  split_heads(workers, {1, 2, weight, 0, &quarter, Elem::f32}, z.data(), 1, y.data());
  CHECK(y[0] == Approx(-8.0 / std::sqrt(12.5)));
  CHECK(y[1] == Approx(3.0 / std::sqrt(12.5)));
  // bf16 keeps 8 bits: 1 + 2^-8 is halfway to 1 + 2^-7 and rounds to even.
  const std::vector<float> fine{1.0F + 0x1p-8F, 1.0F + 0x1.8p-7F};
  split_heads(workers, {1, 2, {}, 0, nullptr, Elem::bf16}, fine.data(), 1, y.data());
  CHECK(y == std::vector<float>{1.0F, 1.0F + 0x1p-6F});
}

TEST_CASE("heads of several tokens go head-major") {
  Workers workers(1);
  const std::vector<float> x{0, 1, 2, 3, /* second token */ 4, 5, 6, 7};  // 2 heads of 2
  std::vector<float> y(8);
  split_heads(workers, {2, 2, {}, 0, nullptr, Elem::f32}, x.data(), 2, y.data());
  CHECK(y == std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7});
}

TEST_CASE("rope tables hold the angles of their positions") {
  const std::vector<float> frequencies{1.0F, 0.25F};
  const RopeTable table = rope_table(frequencies, 1, 3, 2);
  REQUIRE(table.cosine.size() == 4);
  CHECK(table.pairs == 2);
  CHECK(table.cosine[0] == Approx(std::cos(3.0)));
  CHECK(table.sine[1] == Approx(std::sin(0.75)));
  CHECK(table.sine[3] == Approx(std::sin(1.0)));
  const RopeTable sharper = rope_table(frequencies, 1.5, 3, 2);
  CHECK(sharper.cosine[0] == Approx(1.5 * std::cos(3.0)));
  CHECK(sharper.sine[3] == Approx(1.5 * std::sin(1.0)));
}

TEST_CASE("a partial rotation does not change or scale the rest of a head") {
  Workers workers(1);
  // Two of five components rotate by a right angle and double: (1, 2) becomes (-4, 2).
  const std::vector<float> x{1, 2, 3, 4, 5};
  const RopeTable quarter{1, {0.0F}, {2.0F}};
  std::vector<float> y(5);
  split_heads(workers, {1, 5, {}, 0, &quarter, Elem::f32}, x.data(), 1, y.data());
  CHECK(y == std::vector<float>{-4, 2, 3, 4, 5});
}

TEST_CASE("RMSNorm, SwiGLU and the residual by hand") {
  Workers workers(1);
  const std::vector<float> x{3, 4, 0, 0}, weight{2, 1};
  std::vector<float> y(4);
  rms_norm(workers, x.data(), 2, weight, 0.5F, y.data());
  CHECK(y[0] == Approx(6 / std::sqrt(13.0)));
  CHECK(y[1] == Approx(4 / std::sqrt(13.0)));
  CHECK(y[2] == 0);
  std::vector<float> gate{0, 2, -100};
  const std::vector<float> up{5, 3, 7};
  swiglu(workers, gate.data(), up.data(), 3);
  CHECK(gate[0] == 0);
  CHECK(gate[1] == Approx(6 / (1 + std::exp(-2.0))));
  CHECK(std::abs(gate[2]) < 1e-30F);
  std::vector<float> sum{1, 2, 3};
  add_to(workers, sum.data(), up.data(), 3);
  CHECK(sum == std::vector<float>{6, 5, 10});
}

TEST_CASE("layer norm and what feed-forwards pass, by hand") {
  Workers workers(1);
  // Less its mean of 4, (2, 6) is (-2, 2), whose mean square is 4.
  const std::vector<float> x{2, 6}, weight{3, 1}, bias{10, 20};
  std::vector<float> y(2);
  layer_norm(workers, x.data(), 1, weight, bias, 0, y.data());
  CHECK(y == std::vector<float>{7, 21});
  layer_norm(workers, x.data(), 1, weight, {}, 0, y.data());
  CHECK(y == std::vector<float>{-3, 1});
  const auto passed = [&](Activation f, const float* up) {
    std::vector<float> gate{1, -1, 0, -20};
    activate(workers, f, gate.data(), up, gate.size());
    return gate;
  };
  const std::vector<float> up{2, 3, 4, 5};
  // Phi(1) = 0.841345; its approximation 0.841192; a sigmoid of 1 is 0.731059.
  for (const auto& [f, at_one] : {std::pair{Activation::gelu, 0.8413447},
                                  {Activation::gelu_tanh, 0.8411920},
                                  {Activation::silu, 0.7310586},
                                  {Activation::relu, 1.0}}) {
    const std::vector<float> alone = passed(f, nullptr), scaled = passed(f, up.data());
    CHECK(alone[0] == Approx(at_one).epsilon(1e-6));
    CHECK(alone[1] == Approx(at_one - 1).margin(1e-6));  // f(-x) = f(x) - x
    CHECK(alone[2] == 0);
    CHECK(std::abs(alone[3]) < 1e-7);
    for (std::size_t i = 0; i < up.size(); ++i) CHECK(scaled[i] == alone[i] * up[i]);
  }
}

}  // namespace kvsim::model::cpu::test_kernels
