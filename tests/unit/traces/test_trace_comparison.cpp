#include <catch2/catch.hpp>
#include <cmath>

#include "scratch.hpp"
#include "sim/base/error.hpp"
#include "small_trace.hpp"
#include "traces/comparison/trace_comparison.hpp"
#include "traces/format/writer.hpp"

namespace kvsim::test_trace_comparison {
namespace {

using test::numbered_trace;
using test::small_model;
using trace::Tensor;

TEST_CASE("differences of rows, by hand") {
  trace::DifferenceMeter meter(0.15);
  // |a - b| = (0, 1), |a| = 5, |b| = sqrt(9 + 25): error 1 / sqrt(34) = 0.1715 of the larger.
  const std::vector<float> a{3, 4}, b{3, 5};
  meter.add(0, 7, a, b);
  // Nothing differs.
  meter.add(1, 3, a, a);
  // |a - b| = 0.5, |a| = 5, |b| = sqrt(9 + 12.25) < 5: error 0.5 / 5 = 0.1, within 0.15.
  const std::vector<float> c{3, 3.5F};
  meter.add(1, 5, a, c);
  const trace::TensorDifference& found = meter.difference();
  CHECK(found.rows == 3);
  CHECK(found.values == 6);
  CHECK(found.unequal == 2);
  CHECK(found.largest_row_error == Approx(1 / std::sqrt(34.0)));
  // A: 25 * 3 = 75; B: 34 + 25 + 21.25 = 80.25; differences: 1 + 0.25.
  CHECK(found.relative_error == Approx(std::sqrt(1.25 / 80.25)));
  // Products: 9 + 20, 25, 9 + 14.
  CHECK(found.cosine.value() == Approx(77 / std::sqrt(75 * 80.25)));
  CHECK(found.largest == 1);
  CHECK((found.a == 4 && found.b == 5 && found.head == 0 && found.row == 7 && found.component == 1));
  CHECK(found.first_row_beyond == 7);
}

TEST_CASE("zero against nonzero is an error of 1, zero against zero is none") {
  const std::vector<float> zero{0, 0}, one{0, 1};
  trace::DifferenceMeter same(0), other(0);
  same.add(0, 0, zero, zero);
  CHECK(same.difference().relative_error == 0);
  CHECK_FALSE(same.difference().cosine.has_value());
  other.add(0, 0, zero, one);
  CHECK(other.difference().relative_error == 1);
  CHECK(other.difference().largest_row_error == 1);
}

/// Writes two traces as files and compares them.
class Pair {
 public:
  trace::TraceComparison compare(const trace::Source& a, const trace::Source& b,
                                 const trace::ComparisonOptions& options = {}) {
    const std::string of_a = scratch_.file("a.h5"), of_b = scratch_.file("b.h5");
    trace::write_trace(of_a, a, {.overwrite = true});
    trace::write_trace(of_b, b, {.overwrite = true});
    Progress progress;
    trace::TraceComparison found =
        trace::compare_traces(trace::FileTrace(of_a, {}), trace::FileTrace(of_b, {}), options, progress);
    CHECK(progress.done == progress.total);
    return found;
  }

 private:
  test::Scratch scratch_;
};

trace::Header header_of(std::uint64_t prompt = 6, std::uint64_t decode = 3) {
  trace::Model model = small_model(3);
  model.rotary_dim = 8;
  model.hidden_size = 5;
  trace::Header header = trace::plain_header(model, prompt, decode);
  header.output_elem = Elem::f32;
  return header;
}

const trace::TensorComparison& tensor_of(const trace::TraceComparison& found, const std::string& part,
                                         std::uint32_t layer) {
  for (const trace::TensorComparison& tensor : found.tensors)
    if (tensor.part == part && tensor.layer == layer) return tensor;
  throw std::runtime_error("not compared: " + part);
}

TEST_CASE("a trace equals itself, with any tensors stored") {
  Pair pair;
  const trace::MemoryTrace made = numbered_trace(header_of());
  const trace::TraceComparison found = pair.compare(made, made, {0, 0});
  CHECK(found.same());
  CHECK(found.header.tokens == 9);
  CHECK(found.header.notes.empty());
  CHECK(trace::diagnosis(found).empty());
  REQUIRE(found.tensors.size() == 3 * 4);
  CHECK(tensor_of(found, "q", 2).difference.values == 4 * 9 * 8);
  CHECK(tensor_of(found, "k", 0).difference.values == 2 * 9 * 8);
  CHECK(tensor_of(found, "wo", 1).difference.values == 4 * 8 * 5);
}

TEST_CASE("one changed value is found, with its place") {
  Pair pair;
  const trace::MemoryTrace a = numbered_trace(header_of());
  trace::MemoryTrace b = numbered_trace(header_of());
  b.rows(Tensor::value, 1, 1)[4 * 8 + 6] += 1;  // head 1, token 4, component 6
  const trace::TraceComparison found = pair.compare(a, b);
  CHECK_FALSE(found.same());
  for (const trace::TensorComparison& tensor : found.tensors)
    CHECK(tensor.within() == (tensor.part != "v" || tensor.layer != 1));
  const trace::TensorDifference& difference = tensor_of(found, "v", 1).difference;
  CHECK(difference.unequal == 1);
  CHECK(difference.largest == Approx(1).epsilon(1e-6));
  CHECK((difference.head == 1 && difference.row == 4 && difference.component == 6));
  CHECK(difference.first_row_beyond == 4);
  CHECK(difference.relative_error < difference.largest_row_error);
  CHECK(pair.compare(a, b, {0.5, 2}).same());
  CHECK_FALSE(pair.compare(a, b, {0.5, 0.01}).same());  // each row has its own tolerance
}

TEST_CASE("one wrong token is found among any number of right ones") {
  Pair pair;
  trace::Header header = header_of(3000, 0);
  header.elem = Elem::bf16;
  header.model.n_layers = 1;
  header.model.layer_window = {-1};
  header.output_elem.reset();
  const trace::MemoryTrace a = numbered_trace(header);
  trace::MemoryTrace b = numbered_trace(header);
  for (float& value : b.rows(Tensor::key, 0, 0).subspan(2000 * 8, 8)) value = -value;
  const trace::TraceComparison found = pair.compare(a, b);
  const trace::TensorComparison& keys = tensor_of(found, "k", 0);
  // The tensor's error is about 2 / sqrt(2 * 3000), the row's is 2: opposite vectors.
  CHECK(keys.difference.relative_error == Approx(2 / std::sqrt(6000.0)).epsilon(0.5));
  CHECK(keys.difference.largest_row_error == Approx(2));
  CHECK_FALSE(keys.within());
}

TEST_CASE("default tolerances follow the coarser elements") {
  CHECK(trace::default_tolerance(Elem::f32) == 1e-5);
  CHECK(trace::default_tolerance(Elem::bf16) == 8 * trace::default_tolerance(Elem::f16));
  Pair pair;
  trace::Header narrow = header_of();
  narrow.elem = Elem::bf16;
  const trace::TraceComparison found = pair.compare(numbered_trace(header_of()), numbered_trace(narrow));
  CHECK(found.same());  // the same numbers, rounded to bf16
  const trace::TensorComparison& keys = tensor_of(found, "k", 0);
  CHECK(keys.tolerance.tensor == trace::default_tolerance(Elem::bf16));
  CHECK(keys.tolerance.row == 16 * keys.tolerance.tensor);
  CHECK(keys.difference.relative_error > 1e-4);
  CHECK(tensor_of(found, "wo", 0).tolerance.tensor == 1e-5);
}

TEST_CASE("tokens are compared up to the first that differs") {
  Pair pair;
  trace::Header other = header_of();
  other.token_id[7] = 99;
  trace::MemoryTrace b = numbered_trace(other);
  for (float& value : b.rows(Tensor::key, 0, 0).subspan(7 * 8))
    value = 0;  // keys of tokens that are not
                // compared
  const trace::TraceComparison found = pair.compare(numbered_trace(header_of()), b);
  CHECK(found.header.tokens == 7);
  REQUIRE(found.header.differences.size() == 1);
  CHECK(found.header.differences[0].part == "tokens");
  CHECK(found.header.differences[0].detail == "differ from token 7 on: 7 against 99; compared up to there");
  CHECK_FALSE(found.same());
  for (const trace::TensorComparison& tensor : found.tensors) CHECK(tensor.difference.unequal == 0);

  // In a shorter run the rows lie at other places of the file.
  const trace::TraceComparison shorter =
      pair.compare(numbered_trace(header_of()), numbered_trace(header_of(6, 1)));
  CHECK(shorter.header.tokens == 7);
  CHECK(shorter.header.differences[0].detail == "9 against 7; the first 7 are compared");

  other = header_of();
  other.token_id[2] = -1;  // withheld, so not known to differ
  CHECK(pair.compare(numbered_trace(header_of()), numbered_trace(other)).same());
}

TEST_CASE("queries are compared where both traces store them") {
  Pair pair;
  trace::Header some = header_of(), others = header_of();
  some.query_token = {1, 2, 5, 6, 8};
  others.query_token = {0, 2, 3, 5, 6, 7};
  const auto copy_rows = [](const trace::MemoryTrace& all, trace::MemoryTrace& of) {
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      for (std::uint32_t head = 0; head < 4; ++head)
        for (std::size_t i = 0; i < of.header().query_token.size(); ++i)
          all.read(Tensor::query, layer, head, of.header().query_token[i], 1,
                   of.rows(Tensor::query, layer, head).subspan(i * 8, 8));
  };
  const trace::MemoryTrace all = numbered_trace(header_of());
  trace::MemoryTrace a = numbered_trace(some), b = numbered_trace(others);
  copy_rows(all, a);
  copy_rows(all, b);
  b.rows(Tensor::query, 2, 3)[4 * 8] += 2;  // token 6
  const trace::TraceComparison found = pair.compare(a, b);
  CHECK(tensor_of(found, "q", 0).difference.rows == 3 * 4);  // tokens 2, 5, 6
  CHECK(tensor_of(found, "q", 0).difference.unequal == 0);
  CHECK(tensor_of(found, "q", 2).difference.row == 6);
  CHECK_THAT(found.header.notes.at(0), Catch::Contains("Queries of 3 of the 9 tokens"));
  CHECK(tensor_of(pair.compare(all, a), "q", 1).difference.unequal == 0);
}

TEST_CASE("models, positions and paths that differ are named") {
  Pair pair;
  const auto differences = [&](const trace::Header& other) {
    return pair.compare(numbered_trace(header_of()), numbered_trace(other)).header;
  };
  trace::Header other = header_of();
  other.model.layer_window[1] = 4;
  other.model.attn_scale *= 1.0001;
  other.model.inv_freq[2] = 0.5F;
  other.model.hidden_size = 6;
  trace::HeaderComparison found = differences(other);
  REQUIRE(found.differences.size() == 4);
  CHECK(found.differences[0].detail == "hidden_size: 5 against 6");
  CHECK_THAT(found.differences[1].detail, Catch::StartsWith("attn_scale: 0.35355"));
  CHECK(found.differences[2].detail == "window of layer 1: -1 against 4");
  CHECK(found.differences[3].detail == "RoPE frequency 2: 0 against 0.5");
  CHECK(found.tokens == 9);

  other = header_of();
  for (std::size_t t = 4; t < 9; ++t) other.token_position[t] += 10;
  found = differences(other);
  CHECK(found.differences.at(0).part == "positions");
  CHECK(found.tokens == 4);

  other = header_of();
  other.segments[1].phase = trace::Phase::prompt;
  found = differences(other);
  CHECK(found.differences.at(0).detail == "segment 1: decode against prompt");
  CHECK(found.tokens == 9);

  // The last three tokens branch off from the root.
  other = header_of();
  other.segments[1].parent = -1;
  other.segments[1].path_len = 0;
  for (std::size_t t = 6; t < 9; ++t) other.passes[t - 5].past_len -= 6;
  found = differences(other);
  CHECK(found.differences.at(0).detail == "differ from token 6 on: 5 against -1; compared up to there");
  CHECK(found.tokens == 6);

  trace::Model shape = small_model(2);
  const trace::TraceComparison shapes =
      pair.compare(numbered_trace(header_of()), numbered_trace(trace::plain_header(shape, 6, 3)));
  CHECK_FALSE(shapes.header.same_shape);
  CHECK_FALSE(shapes.same());
  CHECK(shapes.header.differences.at(0).detail == "layers: 3 against 2");
  CHECK(shapes.tensors.empty());
}

TEST_CASE("attention rows are compared where they begin at the same key") {
  test::Scratch scratch;
  trace::Header header = trace::plain_header(small_model(1, 1, 1), 4, 0);
  header.attention_token = {1, 3};
  const auto write = [&](const char* name, std::uint64_t first, const std::vector<float>& last) {
    const std::string path = scratch.file(name);
    trace::Writer writer(path, header);
    const std::vector<float> rows(4 * 8);
    for (const Tensor tensor : test::kTensors) writer.append(tensor, 0, 4, rows);
    writer.append_attention(0, 0, 2, std::vector<float>{0.25F, 0.75F});
    writer.append_attention(0, first, last.size(), last);
    writer.finish(header);
    return path;
  };
  const std::string a = write("a.h5", 1, {0.5F, 0.25F, 0.25F}), b = write("b.h5", 1, {0.5F, 0.375F, 0.125F}),
                    c = write("c.h5", 2, {0.75F, 0.25F});
  Progress progress;
  const auto compare = [&](const std::string& x, const std::string& y) {
    return trace::compare_traces(trace::FileTrace(x, {}), trace::FileTrace(y, {}), {}, progress);
  };
  const trace::TraceComparison found = compare(a, b);
  const trace::TensorDifference& difference = tensor_of(found, "attention", 0).difference;
  CHECK(difference.values == 5);
  CHECK(difference.largest == 0.125);
  CHECK((difference.row == 3 && difference.component == 1));
  CHECK_THAT(trace::diagnosis(found), Catch::Contains("mask, window, scale"));
  const trace::TraceComparison windows = compare(a, c);
  CHECK(tensor_of(windows, "attention", 0).difference.values == 2);
  CHECK(windows.header.differences.at(0).detail == "the row of token 3 in layer 0 begins at key 1 against 2");
}

TEST_CASE("column statistics are compared where they count the same tokens") {
  Pair pair;
  trace::Header header = header_of();
  header.counted_tokens = 6;
  trace::MemoryTrace a(header), b(header);
  for (trace::MemoryTrace* made : {&a, &b})
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      for (std::uint32_t head = 0; head < 4; ++head) {
        std::fill_n(made->column_sums(layer, head).begin(), 6, 1.0F);
        std::fill_n(made->column_sums_of_squares(layer, head).begin(), 6, 0.25F);
      }
  CHECK(pair.compare(a, b, {0, 0}).same());
  b.column_sums_of_squares(1, 3)[4] = 0.5F;
  const trace::TraceComparison found = pair.compare(a, b);
  CHECK(tensor_of(found, "column_sum", 1).difference.unequal == 0);
  const trace::TensorDifference& squares = tensor_of(found, "column_sum_squares", 1).difference;
  CHECK((squares.unequal == 1 && squares.head == 3 && squares.component == 4 && squares.values == 4 * 6));
  CHECK_THAT(trace::diagnosis(found), Catch::Contains("column statistics of layer 1"));

  const trace::TraceComparison none = pair.compare(a, numbered_trace(header_of()));
  CHECK_THAT(none.header.notes.at(0), Catch::Contains("Only A holds column statistics"));
  header = header_of(7, 2);
  header.counted_tokens = 7;
  const trace::TraceComparison others = pair.compare(a, trace::MemoryTrace(header));
  CHECK_THAT(others.header.notes.at(0), Catch::Contains("count other tokens"));
}

TEST_CASE("the first stage that differs names the cause") {
  Pair pair;
  const trace::MemoryTrace a = numbered_trace(header_of());
  const auto cause = [&](std::initializer_list<Tensor> tensors, std::uint32_t from_layer,
                         std::size_t from_token) {
    trace::MemoryTrace b = numbered_trace(header_of());
    for (const Tensor tensor : tensors)
      for (std::uint32_t layer = from_layer; layer < 3; ++layer)
        for (std::uint32_t head = 0; head < test::heads_of(a.header().model, tensor); ++head)
          for (float& value : b.rows(tensor, layer, head).subspan(from_token * 8)) value *= 1.5F;
    return trace::diagnosis(pair.compare(a, b));
  };
  using enum Tensor;
  CHECK_THAT(cause({query, key, value}, 0, 0), Catch::Contains("k, q, v of layer 0. Look at embedding"));
  CHECK_THAT(cause({query, key}, 0, 1),
             Catch::Contains("k, q of layer 0. Look at RoPE") && Catch::Contains("before token 1"));
  CHECK_THAT(cause({key}, 0, 0),
             Catch::Contains("k of layer 0. Look at projection, bias, QK-norm or RoPE layout"));
  CHECK_THAT(cause({value}, 0, 0), Catch::Contains("v of layer 0. Look at value projection"));
  CHECK_THAT(cause({query, key, value}, 2, 3),
             Catch::Contains("layer 2. Look at what layer 1 does after its keys"));
}

TEST_CASE("rows rotated in another layout are compared in A's order") {
  Pair pair;
  trace::Header header = header_of();
  header.model.rotary_dim = 6;  // of 8 components: the last two are not rotated
  header.model.inv_freq = {1, 0.5F, 0.25F};
  trace::MemoryTrace half = numbered_trace(header);
  header.model.rope_layout = "interleaved";
  trace::MemoryTrace interleaved = numbered_trace(header);
  // Pairs are 0 and 3, 1 and 4, 2 and 5 of one, 0 and 1, 2 and 3, 4 and 5 of the other.
  constexpr std::size_t kPlace[] = {0, 2, 4, 1, 3, 5, 6, 7};
  for (const Tensor tensor : {Tensor::query, Tensor::key})
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      for (std::uint32_t head = 0; head < test::heads_of(header.model, tensor); ++head) {
        const std::span<const float> rows = half.rows(tensor, layer, head);
        for (std::size_t i = 0; i < rows.size(); ++i)
          interleaved.rows(tensor, layer, head)[i / 8 * 8 + kPlace[i % 8]] = rows[i];
      }
  for (const auto& [a, b] : {std::pair{&half, &interleaved}, std::pair{&interleaved, &half}}) {
    const trace::TraceComparison found = pair.compare(*a, *b, {0, 0});
    CHECK(found.same());
    REQUIRE(found.header.notes.size() == 1);
    CHECK_THAT(found.header.notes[0], Catch::Contains("rope_layout") && Catch::Contains("A's order"));
  }
  // One other value is found, where A has it: component 4 of the one is component 3 of the other.
  interleaved.rows(Tensor::key, 1, 1)[2 * 8 + 3] += 1;
  const trace::TensorDifference& difference = tensor_of(pair.compare(half, interleaved), "k", 1).difference;
  CHECK((difference.unequal == 1 && difference.row == 2 && difference.component == 4));
  // Rows of another order than their header says are other rows.
  CHECK_FALSE(pair.compare(half, numbered_trace(header)).same());
}

TEST_CASE("a value that is not a number is refused with its place") {
  Pair pair;
  trace::MemoryTrace b = numbered_trace(header_of());
  b.rows(Tensor::key, 1, 1)[3 * 8 + 2] = std::nanf("");
  CHECK_THROWS_WITH(
      pair.compare(numbered_trace(header_of()), b),
      Catch::Contains("not finite: head 1, row 3, component 2") && Catch::Contains("/layers/0001/k"));
}

}  // namespace
}  // namespace kvsim::test_trace_comparison
