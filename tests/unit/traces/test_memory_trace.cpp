// Tests traces in memory, plain headers, and paths through a segment tree.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/base/error.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::test::test_memory_trace {

using trace::Tensor;

namespace {

/// One document, two branches:  0: tokens 0-3 (prompt)
///                              +- 1: tokens 4-5 (decode)
///                              +- 2: tokens 6-8 (prompt) -- 3: token 9 (decode)
trace::Header branching() {
  trace::Header header = trace::plain_header(small_model(1), 10, 0);
  header.segments = {{-1, 0, 4, 0, trace::Phase::prompt, 0, 0},
                     {0, 4, 2, 4, trace::Phase::decode, 0, 0},
                     {0, 6, 3, 4, trace::Phase::prompt, 1, 0},
                     {2, 9, 1, 7, trace::Phase::decode, 1, 0}};
  header.token_segment = {0, 0, 0, 0, 1, 1, 2, 2, 2, 3};
  header.token_position = {0, 1, 2, 3, 4, 5, 4, 5, 6, 7};
  header.sequence_leaf = {1, 3};
  header.passes.clear();
  return header;
}

std::vector<float> read(const trace::Sequence& sequence, Tensor tensor, std::uint32_t head,
                        std::uint64_t first, std::uint64_t n) {
  std::vector<float> out(n * dim_of(sequence.model(), tensor));
  sequence.read(tensor, 0, head, first, n, out);
  return out;
}

std::vector<float> row_of(const trace::Source& source, Tensor tensor, std::uint32_t head, std::uint64_t row) {
  std::vector<float> out(dim_of(source.header().model, tensor));
  source.read(tensor, 0, head, row, 1, out);
  return out;
}

}  // namespace

TEST_CASE("a plain header is a prompt, its decode steps and one sequence") {
  const trace::Header header = trace::plain_header(small_model(3, 2, 4, 16, 0), 5, 2);
  CHECK(header.n_tokens() == 7);
  CHECK(header.n_query_rows() == 7);
  CHECK(header.model.v_head_dim == 16);
  CHECK(header.model.group() == 4);
  CHECK(header.model.attn_scale == 0.25);
  CHECK(header.model.layer_window == std::vector<std::int32_t>{-1, -1, -1});
  REQUIRE(header.segments.size() == 2);
  CHECK(header.segments[1].parent == 0);
  CHECK(header.segments[1].path_len == 5);
  REQUIRE(header.passes.size() == 3);
  CHECK(header.passes[0].q_len == 5);
  CHECK((header.passes[2].begin == 6 && header.passes[2].past_len == 6));
  CHECK(header.token_flags[4] == 0);
  CHECK(header.token_flags[5] == trace::kFlagGenerated);
  CHECK(trace::plain_header(small_model(), 5, 0).segments.size() == 1);
  CHECK_THROWS_AS(trace::plain_header(small_model(), 0, 2), Error);
}

TEST_CASE("a model describes the rotation of its queries and keys") {
  trace::Model model = small_model();
  model.rotary_dim = 4;
  model.inv_freq = {1.0F, 0.5F};
  model.rope_attention_factor = 1.25;
  CHECK(model.rotary(0).inv_freq.data() == model.inv_freq.data());
  CHECK(model.rotary(0).inv_freq.size() == 2);
  CHECK(model.rotary(0).layout == RotaryLayout::half_split);
  CHECK(model.rotary(0).attention_factor == 1.25);
  model.rope_layout = "interleaved";
  CHECK(model.rotary(0).layout == RotaryLayout::interleaved);
  model.inv_freq = {1.0F, 0.5F, 0.25F, 0.125F};
  model.rotation_factor = {1.25, 2};
  model.layer_rotation = {1, 0};
  CHECK(model.rotary(0).inv_freq.data() == model.inv_freq.data() + 2);
  CHECK(model.rotary(0).attention_factor == 2);
  CHECK(model.rotary(1).inv_freq.data() == model.inv_freq.data());
  CHECK(model.rotary(1).inv_freq.size() == 2);
}

TEST_CASE("rows written into a memory trace are the rows read") {
  trace::MemoryTrace made(trace::plain_header(small_model(2, 2, 2, 8, 4), 3, 1));
  CHECK(made.rows(Tensor::value, 1, 1).size() == 4 * 4);
  CHECK(made.rows(Tensor::query, 1, 3).size() == 4 * 8);
  made.rows(Tensor::key, 1, 0)[2 * 8 + 5] = 7;
  std::vector<float> out(8);
  made.read(Tensor::key, 1, 0, 2, 1, out);
  CHECK(out == std::vector<float>{0, 0, 0, 0, 0, 7, 0, 0});
  made.read(Tensor::key, 0, 0, 2, 1, out);
  CHECK(out == std::vector<float>(8));
  CHECK_THROWS_AS(made.read(Tensor::key, 0, 0, 4, 1, out), Error);
  CHECK_THROWS_AS(made.read(Tensor::key, 0, 2, 0, 1, out), Error);
  CHECK_THROWS_AS(made.read(Tensor::key, 2, 0, 0, 1, out), Error);
}

TEST_CASE("output weights written into a memory trace are those read") {
  trace::Header header = trace::plain_header(small_model(2, 2, 2, 8, 4), 3, 1);
  header.model.hidden_size = 6;
  std::vector<float> out(4 * 6);
  const trace::MemoryTrace without(header);
  CHECK_FALSE(without.has_output_weights());
  CHECK_THROWS_WITH(without.read_output_weights(0, 0, out), Catch::Contains("holds no output weights"));

  header.output_elem = Elem::f32;
  trace::MemoryTrace made(header);
  CHECK(made.has_output_weights());
  CHECK(made.output_weights(1, 3).size() == 4 * 6);
  made.output_weights(1, 2)[2 * 6 + 5] = 7;
  made.read_output_weights(1, 2, out);
  std::vector<float> expected(4 * 6);
  expected[2 * 6 + 5] = 7;
  CHECK(out == expected);
  made.read_output_weights(1, 1, out);
  CHECK(out == std::vector<float>(4 * 6));
  CHECK_THROWS_AS(made.read_output_weights(2, 0, out), Error);
  CHECK_THROWS_AS(made.read_output_weights(0, 4, out), Error);
  CHECK_THROWS_AS(made.read_output_weights(0, 0, std::span(out).subspan(1)), Error);
}

TEST_CASE("a plain sequence is the trace itself") {
  const trace::MemoryTrace made = numbered_trace(trace::plain_header(small_model(1), 6, 2));
  const trace::Sequence sequence(made);
  CHECK(sequence.length() == 8);
  CHECK(sequence.prompt_length() == 6);
  CHECK(sequence.decode_length() == 2);
  CHECK(sequence.first_query() == 0);
  CHECK(sequence.token(7) == 7);
  CHECK(read(sequence, Tensor::query, 3, 0, 8) == all_rows(made, Tensor::query, 0, 3));
  CHECK(read(sequence, Tensor::key, 1, 5, 2).size() == 16);
  CHECK_THROWS_AS(sequence.token(8), Error);
}

TEST_CASE("a branch reads its ancestors' tokens, then its own") {
  const trace::MemoryTrace made = numbered_trace(branching());
  const trace::Sequence sequence(made, 1);
  CHECK(sequence.length() == 8);
  CHECK(sequence.prompt_length() == 7);
  const std::uint64_t tokens[] = {0, 1, 2, 3, 6, 7, 8, 9};
  for (std::uint64_t position = 0; position < 8; ++position)
    CHECK(sequence.token(position) == tokens[position]);
  // Compares every range with reading token by token.
  for (std::uint64_t first = 0; first < 8; ++first) {
    for (std::uint64_t n = 1; first + n <= 8; ++n) {
      std::vector<float> expected;
      for (std::uint64_t position = first; position < first + n; ++position) {
        const std::vector<float> row = row_of(made, Tensor::value, 1, tokens[position]);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      REQUIRE(read(sequence, Tensor::value, 1, first, n) == expected);
    }
  }
  CHECK(trace::Sequence(made, 0).length() == 6);
  CHECK_THROWS_WITH(trace::Sequence(made, 2), Catch::Contains("sequence 2 does not exist"));
}

TEST_CASE("token flags are read along the path, as far as they are known") {
  trace::Header header = branching();
  const std::uint32_t extra = trace::kFlagSpecial;
  for (std::size_t t = 0; t < 10; ++t) header.token_flags[t] = extra | (t % 2 == 0 ? 0U : trace::kFlagDigit);
  header.flags_known = trace::kFlagDigit | trace::kFlagPunctuation;
  const trace::MemoryTrace made(header);
  const trace::Sequence sequence(made, 1);  // tokens 0 1 2 3 6 7 8 9
  CHECK(sequence.flags_known() == header.flags_known);
  const std::uint32_t d = trace::kFlagDigit;
  std::vector<std::uint32_t> found;
  for (std::uint64_t position = 0; position < 8; ++position) found.push_back(sequence.flags(position));
  CHECK(found == std::vector<std::uint32_t>{0, d, 0, d, 0, d, 0, d});
  CHECK_THROWS_AS(sequence.flags(8), Error);
  header.token_flags[6] |= trace::kFlagPunctuation;
  const trace::MemoryTrace other(header);
  CHECK(trace::Sequence(other, 1).flags(4) == trace::kFlagPunctuation);
}

TEST_CASE("first_query() is the first position from which on every query is stored") {
  trace::Header header = branching();
  header.query_token = {1, 3, 5, 7, 8, 9};  // row numbers 0..5
  const trace::MemoryTrace made = numbered_trace(header);
  const trace::Sequence second(made, 1);  // tokens 0 1 2 3 6 7 8 9: stored from 7 on
  CHECK(second.first_query() == 5);
  CHECK(read(second, Tensor::query, 2, 5, 1) == row_of(made, Tensor::query, 2, 3));
  CHECK(read(second, Tensor::query, 2, 7, 1) == row_of(made, Tensor::query, 2, 5));
  CHECK_THROWS_WITH(read(second, Tensor::query, 2, 4, 2),
                    Catch::Contains("before position 5 are not stored"));
  CHECK(trace::Sequence(made, 0).first_query() == 5);  // tokens 0 1 2 3 4 5: only 5

  header.query_token = {0};
  const trace::MemoryTrace none = numbered_trace(header);
  CHECK(trace::Sequence(none, 0).first_query() == 6);  // none at the end
}

TEST_CASE("of several turns the last is replayed, the others are its prompt") {
  trace::Header header = branching();
  header.segments[2].parent = 1;  // the second question follows the first answer
  header.segments[2].path_len = 6;
  header.segments[3].path_len = 9;
  for (std::uint64_t t = 6; t < 10; ++t) header.token_position[t] = static_cast<std::int32_t>(t);
  const trace::MemoryTrace made(header);
  const trace::Sequence first(made, 0), second(made, 1);
  CHECK((first.prompt_length() == 4 && first.decode_length() == 2 && first.answered_length() == 0));
  // 4 tokens, the 2 generated from them, 3 of the second question; then its answer.
  CHECK((second.prompt_length() == 9 && second.decode_length() == 1 && second.answered_length() == 2));
  CHECK(second.token(9) == 9);

  // A conversation that ends with a question generates nothing after it.
  header.sequence_leaf = {2};
  const trace::MemoryTrace asked(header);
  const trace::Sequence open(asked);
  CHECK((open.prompt_length() == 9 && open.decode_length() == 0 && open.answered_length() == 2));
}

TEST_CASE("a sequence announces the rows that it reads, and no queries that are not stored") {
  struct Noting final : trace::Source {
    using Call = std::array<std::uint64_t, 5>;
    explicit Noting(const trace::MemoryTrace& of) : all(&of) {}
    const trace::Header& header() const override { return all->header(); }
    std::string name() const override { return "noting"; }
    std::string content_sha256() const override { return {}; }
    void read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first, std::uint64_t n,
              std::span<float>) const override {
      reads.push_back({static_cast<std::uint64_t>(tensor), layer, head, first, n});
    }
    void will_read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first,
                   std::uint64_t n) const override {
      announced.push_back({static_cast<std::uint64_t>(tensor), layer, head, first, n});
    }
    void read_output_weights(std::uint32_t, std::uint32_t, std::span<float>) const override {}
    void read_column_statistics(std::uint32_t, std::uint32_t, std::span<float>,
                                std::span<float>) const override {}
    const trace::MemoryTrace* all;
    mutable std::vector<Call> reads, announced;
  };
  trace::Header header = branching();
  header.query_token = {2, 3, 6, 7, 8, 9};  // of the second branch, its positions 2 to 7
  const trace::MemoryTrace made(header);
  const Noting noting(made);
  const trace::Sequence second(noting, 1);
  for (const Tensor tensor : {Tensor::key, Tensor::query}) {
    read(second, tensor, 1, 3, 4);
    second.will_read(tensor, 0, 1, 3, 4);
  }
  CHECK(noting.announced == noting.reads);
  CHECK(noting.announced.back() == Noting::Call{static_cast<std::uint64_t>(Tensor::query), 0, 1, 2, 3});
  noting.announced.clear();
  second.will_read(Tensor::query, 0, 1, 0, 4);  // only those of positions 2 and 3
  REQUIRE(noting.announced.size() == 1);
  CHECK(noting.announced[0] == Noting::Call{static_cast<std::uint64_t>(Tensor::query), 0, 1, 0, 2});
  second.will_read(Tensor::query, 0, 1, 0, 2);
  CHECK(noting.announced.size() == 1);
}

TEST_CASE("a sequence has positions without gaps") {
  trace::Header header = branching();
  header.token_position[9] = 8;  // sequence 1: 0 1 2 3 4 5 6 8
  const trace::MemoryTrace made(header);
  CHECK_NOTHROW(trace::Sequence(made, 0));
  CHECK_THROWS_WITH(trace::Sequence(made, 1), Catch::Contains("/tokens/position[9]") &&
                                                  Catch::Contains("is 8, but the token is number 7"));
}

TEST_CASE("a sequence without a prompt is refused") {
  trace::Header header = trace::plain_header(small_model(1), 3, 0);
  header.segments[0].phase = trace::Phase::decode;
  const trace::MemoryTrace made(header);
  CHECK_THROWS_WITH(trace::Sequence(made), Catch::Contains("no prompt"));
}

}  // namespace kvsim::test::test_memory_trace
