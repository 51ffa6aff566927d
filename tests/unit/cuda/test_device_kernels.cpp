// Compares each kernel with a plain implementation of its definition in double.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/unit/cuda/on_device.hpp"

namespace kvsim::model::cuda {
namespace {

/// The largest difference, relative to the largest value of `expected`.
double relative_error(const std::vector<float>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double error = 0, scale = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    error = std::max(error, std::abs(double{found[i]} - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
    if (std::isnan(found[i])) return NAN;
  }
  return error / scale;
}

/// Tolerance of one rounding to T, with some room for the arithmetic before it.
template <class T>
constexpr double kTolerance = std::is_same_v<T, float> ? 1e-6 : 0x1p-8;

float f16_rounded(float value) {
  return widen_f16(narrow_f16(value));
}

}  // namespace

TEST_CASE("keys and values are rounded as they would be stored, bit for bit") {
  const Stream stream;
  // Ties to even, the smallest subnormals, overflow, infinities, NaN.
  std::vector<float> values{0.0F,     -0.0F,  1.0F,     1.00390625F, 1.01171875F, -1.00390625F, 65504.0F,
                            65520.0F, 1e-8F,  6e-8F,    3.4e38F,     -3.4e38F,    INFINITY,     -INFINITY,
                            NAN,      1e-40F, 0x1p-24F, 0x1p-25F,    0x1.8p-25F};
  const std::vector<float> more = random_floats(1000, 1);
  values.insert(values.end(), more.begin(), more.end());
  const DeviceArray<float> there = on_device(values, stream);
  const DeviceArray<float> rounded_there(values.size(), "rounded");
  HeadScatter scatter;
  scatter.heads = scatter.dim = 1;
  scatter.n = scatter.capacity = values.size();

  for (const Elem elem : {Elem::f32, Elem::f16, Elem::bf16}) {
    std::vector<std::uint8_t> bytes(values.size() * elem_bytes(elem));
    narrow(elem, values.data(), values.size(), bytes.data());
    std::vector<float> expected(values.size());
    widen(elem, bytes.data(), values.size(), expected.data());
    scatter.round_to = elem == Elem::f32 ? Stored::f32 : elem == Elem::f16 ? Stored::f16 : Stored::bf16;
    split_heads(scatter, there.data(), rounded_there.data(), stream.get());
    const std::vector<float> found = from_device(rounded_there, stream);
    CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0);
  }
}

TEMPLATE_TEST_CASE("rows of a table, and one row many times", "", float, Bf16) {
  const Stream stream;
  const std::uint64_t width = 70;  // more than two warps
  const std::vector<TestType> table = all_as<TestType>(random_floats(9 * width, 2));
  const std::vector<std::int32_t> ids{8, 0, 3, 3};
  const auto table_there = on_device(table, stream);
  const auto ids_there = on_device(ids, stream);
  const DeviceArray<TestType> rows(ids.size() * width, "rows");
  gather_rows(table_there.data(), ids_there.data(), ids.size(), width, rows.data(), stream.get());
  const std::vector<float> found = values_of(from_device(rows, stream));
  const std::vector<float> bias = random_floats(width, 3);
  const auto bias_there = on_device(bias, stream);
  repeat_row(bias_there.data(), ids.size(), width, rows.data(), stream.get());
  const std::vector<float> repeated = values_of(from_device(rows, stream));
  for (std::size_t row = 0; row < ids.size(); ++row) {
    for (std::size_t i = 0; i < width; ++i) {
      CHECK(found[row * width + i] == value_of(table[static_cast<std::size_t>(ids[row]) * width + i]));
      CHECK(repeated[row * width + i] == rounded<TestType>(bias[i]));
    }
  }
}

TEST_CASE("RMSNorm of floats") {
  const Stream stream;
  for (const std::uint64_t width : {1, 31, 32, 300, 1000}) {
    const std::uint64_t n = 3;
    const std::vector<float> x = random_floats(n * width, 4), weight = random_floats(width, 5);
    const auto x_there = on_device(x, stream), weight_there = on_device(weight, stream);
    rms_norm(x_there.data(), n, width, weight_there.data(), 1e-5F, x_there.data(), stream.get());
    std::vector<double> expected(n * width);
    for (std::size_t row = 0; row < n; ++row) {
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i)
        squares += double{x[row * width + i]} * double{x[row * width + i]};
      for (std::size_t i = 0; i < width; ++i)
        expected[row * width + i] = double{weight[i]} * double{x[row * width + i]} /
                                    std::sqrt(squares / static_cast<double>(width) + double{1e-5F});
    }
    CHECK(relative_error(from_device(x_there, stream), expected) < 1e-6);
  }
}

TEST_CASE("RMSNorm of bf16 rounds before the weight and after it") {
  // x = (1, 1): the root of the mean square is 1. The weight 1 + 2^-8 lies halfway between 1 and 1 + 2^-7 and
  // rounds to the even 1. x = (3, 1): 3 / sqrt(5) = 1.34164 rounds to 172/128 = 1.34375, and that times 9 =
  // 12.09375 lies halfway between 193/16 and 194/16: the even 12.125. Rounded once, 12.0748 would give
  // 12.0625.
  const Stream stream;
  const auto norm = [&](const std::vector<float>& x, const std::vector<float>& weight) {
    const auto x_there = on_device(all_as<Bf16>(x), stream);
    const auto weight_there = on_device(weight, stream);
    rms_norm(x_there.data(), 1, x.size(), weight_there.data(), 0.0F, x_there.data(), stream.get());
    return values_of(from_device(x_there, stream));
  };
  CHECK(norm({1, 1}, {1.00390625F, 1.01171875F}) == std::vector<float>{1.0F, 1.015625F});
  CHECK(norm({3, 1}, {9, 1})[0] == 12.125F);
}

TEMPLATE_TEST_CASE("SwiGLU and addition", "", float, Bf16) {
  const Stream stream;
  const std::uint64_t count = 1000;
  const std::vector<float> gate = values_of(all_as<TestType>(random_floats(count, 6)));
  const std::vector<float> up = values_of(all_as<TestType>(random_floats(count, 7)));
  const auto gate_there = on_device(all_as<TestType>(gate), stream);
  const auto up_there = on_device(all_as<TestType>(up), stream);
  swiglu(gate_there.data(), up_there.data(), count, stream.get());
  std::vector<double> expected(count);
  for (std::size_t i = 0; i < count; ++i)
    expected[i] = double{gate[i]} / (1 + std::exp(-double{gate[i]})) * double{up[i]};
  const std::vector<float> product = values_of(from_device(gate_there, stream));
  CHECK(relative_error(product, expected) < kTolerance<TestType>);
  add_to(gate_there.data(), up_there.data(), count, stream.get());
  const std::vector<float> sum = values_of(from_device(gate_there, stream));
  for (std::size_t i = 0; i < count; ++i) CHECK(sum[i] == rounded<TestType>(product[i] + up[i]));
}

TEMPLATE_TEST_CASE("heads: norm, rotation of some components, rounding, and their place in the cache", "",
                   float, Bf16) {
  const Stream stream;
  const std::uint64_t heads = 3, dim = 12, n = 5, capacity = 9, first = 2;
  const bool normed = GENERATE(false, true);
  const std::uint32_t rotary = GENERATE(0U, 8U, 12U);
  const Stored round_to = GENERATE(Stored::f32, Stored::f16, Stored::bf16);

  const std::vector<float> x = values_of(all_as<TestType>(random_floats(n * heads * dim, 8)));
  const std::vector<float> weight = random_floats(dim, 9);
  std::vector<float> cosine, sine;
  for (std::uint64_t i = 0; i < n * rotary / 2; ++i) {
    cosine.push_back(static_cast<float>(std::cos(0.3 * static_cast<double>(i))));
    sine.push_back(static_cast<float>(std::sin(0.3 * static_cast<double>(i))));
  }
  const auto x_there = on_device(all_as<TestType>(x), stream);
  const auto weight_there = on_device(weight, stream);
  const auto cosine_there = on_device(cosine, stream), sine_there = on_device(sine, stream);
  const DeviceArray<TestType> y(heads * capacity * dim, "heads");
  zero(y.data(), y.size() * sizeof(TestType), stream);

  HeadScatter scatter;
  scatter.heads = heads;
  scatter.dim = dim;
  scatter.n = n;
  scatter.norm = normed ? weight_there.data() : nullptr;
  scatter.eps = 1e-6F;
  scatter.cosine = cosine_there.data();
  scatter.sine = sine_there.data();
  scatter.rotary = rotary;
  scatter.round_to = round_to;
  scatter.capacity = capacity;
  scatter.first = first;
  split_heads(scatter, x_there.data(), y.data(), stream.get());
  const std::vector<float> found = values_of(from_device(y, stream));

  const auto last_rounding = [&](float value) {
    if (round_to == Stored::f16) value = f16_rounded(value);
    if (round_to == Stored::bf16) value = rounded<Bf16>(value);
    return rounded<TestType>(value);
  };
  std::vector<double> expected(found.size(), 0.0);
  for (std::uint64_t row = 0; row < n; ++row) {
    for (std::uint64_t head = 0; head < heads; ++head) {
      std::vector<float> v(x.begin() + static_cast<long>((row * heads + head) * dim),
                           x.begin() + static_cast<long>((row * heads + head + 1) * dim));
      if (normed) {
        double squares = 0;
        for (const float value : v) squares += double{value} * double{value};
        const auto inverse = static_cast<float>(1 / std::sqrt(squares / dim + 1e-6));
        for (std::uint64_t i = 0; i < dim; ++i)
          v[i] = rounded<TestType>(rounded<TestType>(v[i] * inverse) * weight[i]);
      }
      for (std::uint64_t i = 0; i < dim; ++i) {
        float value = v[i];
        const std::uint64_t half = rotary / 2;
        if (i < rotary) {
          const std::uint64_t pair = i % half;
          const float c = cosine[row * half + pair], s = sine[row * half + pair];
          value = i < half ? v[pair] * c - v[pair + half] * s : v[pair + half] * c + v[pair] * s;
        }
        expected[(head * capacity + first + row) * dim + i] = double{last_rounding(value)};
      }
    }
  }
  // The result is exact except for the norm's sum, whose order may move a value across a rounding boundary.
  const double tolerance = !normed ? 0 : round_to == Stored::f32 ? kTolerance<TestType> : 0x1p-8;
  CHECK(relative_error(found, expected) <= tolerance);
}

TEMPLATE_TEST_CASE("rows of some queries of all heads, and all heads of a query", "", float, Bf16) {
  // The queries [first, first + count) of n in all heads are gathered, then put one after the other.
  const Stream stream;
  const std::uint32_t heads = 5, dim = GENERATE(1U, 24U, 70U);
  const std::uint64_t n = 9, first = 3, count = 4;
  const std::vector<TestType> x = all_as<TestType>(random_floats(heads * n * dim, 12));
  const auto x_there = on_device(x, stream);
  const DeviceArray<TestType> some(heads * count * dim, "some queries"), merged(some.size(), "merged heads");
  const std::uint64_t row = dim * sizeof(TestType);
  copy_rows_on_device(some.data(), count * row, x_there.data() + first * dim, n * row, count * row, heads,
                      stream);
  merge_heads(some.data(), heads, count, dim, merged.data(), stream.get());
  const std::vector<float> gathered = values_of(from_device(some, stream)),
                           found = values_of(from_device(merged, stream));
  std::vector<float> expected_gathered, expected;
  for (std::uint64_t head = 0; head < heads; ++head)
    for (std::uint64_t i = 0; i < count * dim; ++i)
      expected_gathered.push_back(value_of(x[(head * n + first) * dim + i]));
  for (std::uint64_t query = first; query < first + count; ++query)
    for (std::uint64_t head = 0; head < heads; ++head)
      for (std::uint64_t i = 0; i < dim; ++i) expected.push_back(value_of(x[(head * n + query) * dim + i]));
  CHECK(gathered == expected_gathered);
  CHECK(found == expected);
}

namespace {

/// Scores of a block, and their softmax by the definition.
struct Softmax {
  ScoreBlock block;
  float scale = 0.25F;
  std::vector<float> scores;
  std::vector<double> p;

  explicit Softmax(const ScoreBlock& block_in) : block(block_in) {
    scores = random_floats(block.heads * block.queries * block.pitch, 10);
    for (float& score : scores) score *= 20;
    p.resize(scores.size(), 0.0);
    for (std::uint64_t row = 0; row < block.heads * block.queries; ++row) {
      const auto position = static_cast<std::int64_t>(block.first_query + row % block.queries);
      const auto sees = [&](std::uint64_t column) {
        const auto key = static_cast<std::int64_t>(block.first_key + column);
        return key <= position && (block.window < 0 || key > position - block.window);
      };
      const float* from = scores.data() + row * block.pitch;
      double* to = p.data() + row * block.pitch;
      double largest = -INFINITY, sum = 0;
      for (std::uint64_t j = 0; j < block.keys; ++j)
        if (sees(j)) largest = std::max(largest, double{from[j]});
      for (std::uint64_t j = 0; j < block.keys; ++j) {
        if (sees(j)) to[j] = std::exp((double{from[j]} - largest) * double{scale});
        sum += to[j];
      }
      for (std::uint64_t j = 0; j < block.keys; ++j) to[j] /= sum;
    }
  }
};

ScoreBlock score_block(std::uint32_t heads, std::uint64_t first_query, std::uint64_t queries,
                       std::uint64_t first_key, std::int64_t window) {
  ScoreBlock block;
  block.heads = heads;
  block.first_query = first_query;
  block.queries = queries;
  block.first_key = first_key;
  block.keys = first_query + queries - first_key;
  block.pitch = (block.keys + 7) / 8 * 8;
  block.window = window;
  return block;
}

}  // namespace

TEST_CASE("softmax over what each query sees, its rounding, and the sums of its columns") {
  const Stream stream;
  const std::vector<ScoreBlock> blocks{score_block(2, 0, 7, 0, -1), score_block(1, 300, 5, 0, -1),
                                       score_block(2, 10, 6, 7, 4), score_block(3, 600, 1, 0, 1000),
                                       score_block(1, 0, 40, 0, 1)};
  for (const ScoreBlock& block : blocks) {
    const Softmax softmax_of(block);
    const auto p = on_device(softmax_of.scores, stream);
    softmax<float>(block, softmax_of.scale, p.data(), nullptr, stream.get());
    const std::vector<float> found = from_device(p, stream);
    CHECK(relative_error(found, softmax_of.p) < 1e-6);
    for (std::size_t i = 0; i < found.size(); ++i)
      CHECK((found[i] == 0.0F) == (softmax_of.p[i] == 0.0));  // unseen keys and padding are exactly zero

    const auto again = on_device(softmax_of.scores, stream);
    const DeviceArray<Bf16> halves(found.size(), "rounded probabilities");
    softmax(block, softmax_of.scale, again.data(), halves.data(), stream.get());
    CHECK(from_device(again, stream) == found);
    const std::vector<Bf16> rounded_p = from_device(halves, stream);
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(rounded_p[i].bits == narrow_bf16(found[i]));

    // The sums are exact: they are double, over rows in order.
    const std::uint64_t capacity = block.first_key + block.keys + 3;
    const DeviceArray<double> sum(block.heads * capacity, "sums"), squares(block.heads * capacity, "sums");
    zero(sum.data(), sum.size() * sizeof(double), stream);
    zero(squares.data(), squares.size() * sizeof(double), stream);
    add_columns(block, p.data(), capacity, sum.data(), squares.data(), stream.get());
    add_columns(block, p.data(), capacity, sum.data(), squares.data(), stream.get());
    std::vector<double> expected(sum.size(), 0.0), expected_squares(sum.size(), 0.0);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::uint64_t row = 0; row < block.heads * block.queries; ++row) {
        for (std::uint64_t j = 0; j < block.keys; ++j) {
          const double value = found[row * block.pitch + j];
          const std::uint64_t at = row / block.queries * capacity + block.first_key + j;
          expected[at] += value;
          expected_squares[at] += value * value;
        }
      }
    }
    CHECK(from_device(sum, stream) == expected);
    CHECK(from_device(squares, stream) == expected_squares);
  }
}

TEST_CASE("a sliding window ends exactly at its last key") {
  // Window 3, all scores equal: query 5 sees keys 3, 4, 5 and no other, each with a third.
  const Stream stream;
  const ScoreBlock block = score_block(1, 5, 1, 0, 3);
  const auto p = on_device(std::vector<float>(block.pitch, 1.0F), stream);
  softmax<float>(block, 1.0F, p.data(), nullptr, stream.get());
  const float third = 1.0F / 3;
  CHECK(from_device(p, stream) == std::vector<float>{0, 0, 0, third, third, third, 0, 0});
}

TEST_CASE("the greedy choice: the first of the largest, and the row's log-sum-exp") {
  const Stream stream;
  const std::uint64_t vocab = 700;
  std::vector<float> logits = random_floats(3 * vocab, 11);
  logits[100] = logits[650] = 9;   // two equal maxima: the first is chosen
  logits[vocab + vocab - 1] = 30;  // the last id
  for (std::uint64_t i = 0; i < vocab; ++i) logits[2 * vocab + i] = NAN;
  const auto there = on_device(logits, stream);
  const DeviceArray<Greedy> chosen(3, "choices");
  choose_greedily(there.data(), 3, vocab, chosen.data(), stream.get());
  const std::vector<Greedy> found = from_device(chosen, stream);
  CHECK(found[0].id == 100);
  CHECK(found[0].logit == 9.0F);
  CHECK(found[1].id == 699);
  CHECK(found[2].id == -1);
  double sum = 0;
  for (std::uint64_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[i]});
  CHECK(double{found[0].log_sum_exp} == Approx(std::log(sum)).epsilon(1e-6));
}

}  // namespace kvsim::model::cuda
