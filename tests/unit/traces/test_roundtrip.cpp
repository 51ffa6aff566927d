// Tests that a reader returns what was written: tensors in every element type, every field of the header,
// optional data.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <thread>

#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"
#include "tests/unit/traces/hdf5_edit.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/block_digest.hpp"
#include "traces/format/check.hpp"
#include "traces/format/file_trace.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/validate.hpp"
#include "traces/format/writer.hpp"

namespace kvsim::test::test_roundtrip {

using trace::Tensor;

namespace {

trace::Header header_of(Elem elem, std::uint64_t prompt, std::uint64_t decode, std::uint32_t head_dim = 8) {
  trace::Header header = trace::plain_header(small_model(2, 2, 2, head_dim, 4), prompt, decode);
  header.elem = elem;
  return header;
}

/// Writes `source` in blocks of `step` rows.
void write_in_steps(const std::string& path, const trace::Source& source, std::uint64_t step,
                    const trace::WriteOptions& options = {}) {
  const trace::Header& header = source.header();
  trace::Writer writer(path, header, options);
  for (std::uint32_t layer = 0; layer < header.model.n_layers; ++layer) {
    for (const Tensor tensor : kTensors) {
      const std::uint64_t total = tensor == Tensor::query ? header.n_query_rows() : header.n_tokens();
      for (std::uint64_t first = 0; first < total; first += step) {
        const std::uint64_t n = std::min(step, total - first);
        std::vector<float> block;
        for (std::uint32_t head = 0; head < heads_of(header.model, tensor); ++head) {
          std::vector<float> rows(n * dim_of(header.model, tensor));
          source.read(tensor, layer, head, first, n, rows);
          block.insert(block.end(), rows.begin(), rows.end());
        }
        writer.append(tensor, layer, n, block);
      }
    }
  }
  writer.finish(header);
}

void require_same_tensors(const trace::Source& a, const trace::Source& b) {
  for (const Tensor tensor : kTensors)
    for (std::uint32_t layer = 0; layer < a.header().model.n_layers; ++layer)
      for (std::uint32_t head = 0; head < heads_of(a.header().model, tensor); ++head)
        REQUIRE(all_rows(a, tensor, layer, head) == all_rows(b, tensor, layer, head));
}

}  // namespace

TEST_CASE("tensors are read back in every element type, with and without checksums and compression") {
  const Elem elem = GENERATE(Elem::f32, Elem::f16, Elem::bf16);
  const bool checksum = GENERATE(true, false);
  const Scratch scratch;
  const trace::MemoryTrace made = numbered_trace(header_of(elem, 20, 5));
  trace::WriteOptions options;
  options.checksum = checksum;
  options.deflate = GENERATE(0u, 1u, 9u);
  trace::write_trace(scratch.file("a.h5"), made, options);
  const auto read = trace::open_trace(scratch.file("a.h5"));
  CHECK(read->header().elem == elem);
  CHECK(read->name() == scratch.file("a.h5"));
  require_same_tensors(made, *read);
}

TEST_CASE("any number of threads compresses a trace into the same bytes") {
  const Scratch scratch;
  const trace::MemoryTrace made = numbered_trace(header_of(Elem::bf16, 1100, 60, 128));
  const unsigned deflate = GENERATE(0u, 1u);
  write_in_steps(scratch.file("alone.h5"), made, 100, {.deflate = deflate});
  for (const unsigned threads : {1U, 3U}) {
    Workers workers(threads);
    write_in_steps(scratch.file("together.h5"), made, 100,
                   {.overwrite = true, .deflate = deflate, .workers = &workers});
    CHECK(bytes_of(scratch.file("alone.h5")) == bytes_of(scratch.file("together.h5")));
  }
}

TEST_CASE("rows that were announced are read as others are") {
  const Scratch scratch;
  const trace::MemoryTrace made = numbered_trace(header_of(Elem::bf16, 1100, 60, 128));
  trace::write_trace(scratch.file("a.h5"), made, {.deflate = GENERATE(0u, 1u)});
  const auto read = trace::open_trace(scratch.file("a.h5"));
  for (const Tensor tensor : kTensors)
    for (std::uint32_t head = 0; head < 2; ++head) read->will_read(tensor, 1, head, 3, 1157);
  read->will_read(Tensor::key, 0, 0, 1160, 0);
  require_same_tensors(made, *read);
}

TEST_CASE("values that a stored element cannot hold are rounded to nearest even") {
  const Scratch scratch;
  trace::MemoryTrace made(header_of(Elem::bf16, 3, 0));
  made.rows(Tensor::key, 1, 1)[5] = 1.0F + 0x1p-8F;                       // halfway: rounds to even, 1
  made.rows(Tensor::key, 1, 1)[6] = 1.0F + 0x1p-8F + 0x1p-20F;            // above halfway: rounds up
  made.rows(Tensor::value, 0, 0)[2] = std::numeric_limits<float>::max();  // overflows
  trace::write_trace(scratch.file("a.h5"), made);
  const auto read = trace::open_trace(scratch.file("a.h5"));
  CHECK(all_rows(*read, Tensor::key, 1, 1)[5] == 1.0F);
  CHECK(all_rows(*read, Tensor::key, 1, 1)[6] == 1.0F + 0x1p-7F);
  CHECK(std::isinf(all_rows(*read, Tensor::value, 0, 0)[2]));
}

TEST_CASE("rows are read across chunk borders, from several threads") {
  const Elem elem = GENERATE(Elem::f32, Elem::bf16);
  const Scratch scratch;
  // 128 components make chunks of 256 (f32) and 512 (bf16) rows.
  const trace::MemoryTrace made = numbered_trace(header_of(elem, 1100, 60, 128));
  trace::write_trace(scratch.file("a.h5"), made, {.deflate = GENERATE(0u, 1u)});
  const auto read = trace::open_trace(scratch.file("a.h5"));
  const auto matches = [&](std::uint64_t first, std::uint64_t n) {
    std::vector<float> expected(n * 128), found(n * 128);
    made.read(Tensor::query, 1, 3, first, n, expected);
    read->read(Tensor::query, 1, 3, first, n, found);
    return expected == found;
  };
  CHECK(matches(0, 1160));
  CHECK(matches(255, 2));
  CHECK(matches(511, 514));
  CHECK(matches(1159, 1));
  CHECK(matches(1160, 0));
  std::vector<int> good(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < good.size(); ++i)
    threads.emplace_back([&, i] {
      for (std::uint64_t first = i; first < 1100; first += 97) good[i] += matches(first, 60) ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < good.size(); ++i) CHECK(good[i] == static_cast<int>((1100 - i + 96) / 97));
}

TEST_CASE("the same run gives the same bytes for any grouping of its rows") {
  const Scratch scratch;
  const trace::MemoryTrace made = numbered_trace(header_of(Elem::f32, 600, 3, 128));
  write_in_steps(scratch.file("a.h5"), made, 1);
  write_in_steps(scratch.file("b.h5"), made, 1);
  CHECK(bytes_of(scratch.file("a.h5")) == bytes_of(scratch.file("b.h5")));
  write_in_steps(scratch.file("c.h5"), made, 601);
  CHECK(bytes_of(scratch.file("a.h5")) == bytes_of(scratch.file("c.h5")));
}

TEST_CASE("the content digest is what SCHEMA.md says") {
  const Scratch scratch;
  const trace::MemoryTrace made = numbered_trace(header_of(Elem::f32, 6, 2));
  trace::write_trace(scratch.file("a.h5"), made);
  const auto hex_of = [](const void* data, std::size_t bytes) {
    Sha256 sha;
    sha.update(data, bytes);
    return sha.hex();
  };
  const trace::Header& header = made.header();
  std::string content = hex_of(header.token_id.data(), header.token_id.size() * 4), lists;
  for (std::uint32_t layer = 0; layer < header.model.n_layers; ++layer) {
    for (const Tensor tensor : kTensors) {  // k, v, q
      std::string heads;
      std::vector<std::uint64_t> blocks;
      for (std::uint32_t head = 0; head < heads_of(header.model, tensor); ++head) {
        const std::vector<float> rows = all_rows(made, tensor, layer, head);
        heads += hex_of(rows.data(), rows.size() * 4);
        blocks.push_back(trace::block_digest(rows.data(), rows.size() * 4));  // one block: 8 rows
      }
      content += hex_of(heads.data(), heads.size());
      lists += hex_of(blocks.data(), blocks.size() * 8);
    }
  }
  trace::write_trace(scratch.file("old.h5"), made, {.digests = false});
  CHECK(trace::open_trace(scratch.file("old.h5"))->content_sha256() ==
        hex_of(content.data(), content.size()));
  content += lists;
  CHECK(trace::open_trace(scratch.file("a.h5"))->content_sha256() == hex_of(content.data(), content.size()));
}

TEST_CASE("output weights are read back in an element type of their own") {
  const Elem elem = GENERATE(Elem::f32, Elem::bf16), output = GENERATE(Elem::f32, Elem::f16, Elem::bf16);
  // 300 rows of 700 numbers take several chunks, the last one partly filled.
  const bool several_chunks = GENERATE(false, true);
  const Scratch scratch;
  trace::Header header = header_of(elem, 6, 2);
  const trace::MemoryTrace lean = numbered_trace(header);
  if (several_chunks) header.model.v_head_dim = 300;
  header.model.hidden_size = several_chunks ? 700 : 12;
  header.output_elem = output;
  const trace::MemoryTrace made = numbered_trace(header);
  trace::write_trace(scratch.file("a.h5"), made);

  const trace::FileTrace read(scratch.file("a.h5"), {});
  REQUIRE(read.has_output_weights());
  CHECK(read.header().elem == elem);
  CHECK(read.header().output_elem == output);
  require_same_tensors(made, read);
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    CHECK(all_output_weights(made, layer) == all_output_weights(read, layer));
  CHECK(all_output_weights(read, 0) != all_output_weights(read, 1));
  Progress progress;
  const trace::CheckReport report = trace::check_trace(scratch.file("a.h5"), progress);
  CHECK(report.problems.empty());
  CHECK(progress.done == progress.total);

  // They do not affect the rest: the run and its content digest are the same without them.
  if (several_chunks) return;
  trace::write_trace(scratch.file("lean.h5"), lean);
  CHECK(trace::open_trace(scratch.file("lean.h5"))->content_sha256() == read.content_sha256());
}

TEST_CASE("output weights have a digest, that of a tensor") {
  const Scratch scratch;
  trace::Header header = header_of(Elem::bf16, 3, 0);
  header.model.hidden_size = 5;
  header.output_elem = Elem::f32;
  const trace::MemoryTrace made = numbered_trace(header);
  trace::write_trace(scratch.file("a.h5"), made);
  const trace::FileTrace read(scratch.file("a.h5"), {});
  const std::vector<float> weights = all_output_weights(made, 1);
  std::string heads;
  for (std::size_t head = 0; head < 4; ++head) {
    Sha256 sha;
    sha.update(weights.data() + head * 20, 80);  // 4 components of values, 5 of the hidden state
    heads += sha.hex();
  }
  Sha256 sha;
  sha.update(heads.data(), heads.size());
  CHECK(read.output_weights()[1].dataset().text("sha256") == sha.hex());
  CHECK(read.output_weights()[1].dataset().text("elem") == "f32");
}

TEST_CASE("a trace without output weights says how to get them") {
  const Scratch scratch;
  trace::Header header = header_of(Elem::f32, 3, 0);
  header.model.hidden_size = 5;
  trace::write_trace(scratch.file("a.h5"), trace::MemoryTrace(header));
  const auto read = trace::open_trace(scratch.file("a.h5"));
  CHECK_FALSE(read->has_output_weights());
  std::vector<float> out(20);  // 4 components of values, 5 of the hidden state
  CHECK_THROWS_WITH(read->read_output_weights(0, 0, out),
                    Catch::Contains("a.h5: holds no output weights") && Catch::Contains("--output-weights"));
}

TEST_CASE("column statistics are read back and checked against queries and keys") {
  const Scratch scratch;
  trace::Header header = header_of(Elem::f32, 3, 2);
  header.counted_tokens = 3;
  header.capture.compute_dtype = "f32";
  trace::MemoryTrace made(header);  // zero queries and keys: attention is uniform
  const UniformColumns columns(4, 3);
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (std::uint32_t head = 0; head < 4; ++head)
      for (std::size_t j = 0; j < 3; ++j) {
        made.column_sums(layer, head)[j] = columns.sum[j];
        made.column_sums_of_squares(layer, head)[j] = columns.sum_squares[j];
      }
  trace::write_trace(scratch.file("a.h5"), made);
  const auto read = trace::open_trace(scratch.file("a.h5"));
  CHECK(read->header().counted_tokens == 3);
  std::vector<float> sum(3), squares(3);
  read->read_column_statistics(1, 3, sum, squares);
  CHECK(sum == std::vector<float>{11.0F / 6, 5.0F / 6, 1.0F / 3});  // 1 + 1/2 + 1/3, 1/2 + 1/3, 1/3
  CHECK(squares[1] == Approx(13.0 / 36));
  Progress progress;
  trace::CheckReport report = trace::check_trace(scratch.file("a.h5"), progress);
  CHECK(report.problems == std::vector<std::string>{});
  CHECK(report.column_heads == 8);
  CHECK(report.recomputed_heads == 8);

  // The total mass is right, but not its distribution over keys.
  made.column_sums(1, 2)[0] -= 0.1F;
  made.column_sums(1, 2)[1] += 0.1F;
  made.column_sums_of_squares(0, 1)[2] *= 1.01F;
  trace::write_trace(scratch.file("b.h5"), made);
  report = trace::check_trace(scratch.file("b.h5"), progress);
  REQUIRE(report.problems.size() == 2);
  CHECK_THAT(report.problems[0], Catch::Contains("b.h5:/layers/0000/column/sum_squares[1, 2]: is 0.11"));
  CHECK_THAT(report.problems[1], Catch::Contains("/layers/0001/column/sum[2, 0]") &&
                                     Catch::Contains("queries and keys give 1.8333"));

  trace::write_trace(scratch.file("c.h5"), trace::MemoryTrace(header_of(Elem::f32, 3, 0)));
  CHECK_THROWS_WITH(trace::open_trace(scratch.file("c.h5"))->read_column_statistics(0, 0, {}, {}),
                    Catch::Contains("holds no column statistics") && Catch::Contains("--column-statistics"));
}

TEST_CASE("column statistics are given once per layer, as many as the header says") {
  const Scratch scratch;
  trace::Header header = header_of(Elem::f32, 3, 0);
  trace::Writer writer(scratch.file("a.h5"), header);
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (const Tensor tensor : kTensors)
      writer.append(tensor, layer, 3,
                    std::vector<float>(heads_of(header.model, tensor) * 3 * dim_of(header.model, tensor)));
  const UniformColumns columns(4, 3);
  writer.put_column_statistics(0, 3, columns.sum, columns.sum_squares);
  CHECK_THROWS_WITH(writer.put_column_statistics(0, 3, columns.sum, columns.sum_squares),
                    Catch::Contains("twice"));
  CHECK_THROWS_AS(writer.put_column_statistics(2, 3, columns.sum, columns.sum_squares), Error);
  header.counted_tokens = 3;
  CHECK_THROWS_WITH(writer.finish(header), Catch::Contains("/layers/0001/column: counts 0 tokens, not 3"));
}

TEST_CASE("output weights are given once per layer, when the header says so") {
  const Scratch scratch;
  trace::Header header = header_of(Elem::f32, 3, 0);
  header.model.hidden_size = 5;
  const std::vector<float> weights(80);  // 4 heads, 4 components of values, 5 of the hidden state
  {
    trace::Writer writer(scratch.file("a.h5"), header);
    CHECK_THROWS_WITH(writer.put_output_weights(0, weights), Catch::Contains("/layers/0000/wo"));
  }
  header.output_elem = Elem::bf16;
  trace::Writer writer(scratch.file("a.h5"), header);
  CHECK_THROWS_AS(writer.put_output_weights(2, weights), Error);
  CHECK_THROWS_WITH(writer.put_output_weights(0, std::span(weights).subspan(1)),
                    Catch::Contains("wrong size"));
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (const Tensor tensor : kTensors)
      writer.append(tensor, layer, 3,
                    std::vector<float>(heads_of(header.model, tensor) * 3 * dim_of(header.model, tensor)));
  writer.put_output_weights(0, weights);
  CHECK_THROWS_WITH(writer.put_output_weights(0, weights), Catch::Contains("twice"));
  CHECK_THROWS_WITH(writer.finish(header), Catch::Contains("/layers/0001/wo: is missing"));
}

TEST_CASE("every field of the header is read back") {
  trace::Header header = header_of(Elem::bf16, 6, 2);
  header.file_uuid = "123e4567-e89b-12d3-a456-426614174000";
  header.created_utc = "2026-11-20T19:00:00Z";
  header.writer = "kvsim test";
  trace::Model& model = header.model;
  model.name = "tiny/模型";
  model.revision = "main";
  model.model_type = "llama";
  model.architecture = "LlamaForCausalLM";
  model.rotary_dim = 4;
  model.inv_freq = {1.0F, 0.01F};
  model.hidden_size = 33;
  model.vocab_size = 77;
  model.attn_scale = 0.3;
  model.norm_eps = 1e-5;
  model.rope_theta = 10000;
  model.rope_attention_factor = 1.25;
  model.logit_softcap = 50;
  model.rope_type = "llama3";
  model.rope_layout = "interleaved";
  model.qk_norm = model.tied_embeddings = true;
  model.weights_sha256 = std::string(64, 'a');
  model.layer_window = {-1, 4096};
  model.config_json = "{\"hidden_size\": 33}\n";
  trace::Capture& capture = header.capture;
  capture.source = "native-cpu";
  capture.device_name = "cpu0";
  capture.device_kind = "cpu";
  capture.cpu_model = "some processor";
  capture.compute_dtype = "f32";
  capture.accum_dtype = "f64";
  capture.math_mode = "strict";
  capture.attention_kernel = "eager";
  capture.software = "libfoo 1.2";
  capture.sampling = "greedy";
  capture.q_policy = "window:3";
  capture.row_policy = "none";
  capture.verified = "gate A 1e-6";
  capture.workload = "needle-multi-key";
  capture.workload_item = "needle-multi-key-500-s1-0";
  capture.driver = "550.54.14";
  capture.cuda_version = "12.4";
  capture.rank = "1 of 4";
  capture.threads = 7;
  capture.prefill_chunk = 512;
  capture.seed = 0xfedcba9876543210ULL;
  capture.rope_fp32 = false;
  capture.teacher_forced = true;
  header.tokenizer_name = "tok";
  header.tokenizer_sha256 = std::string(64, 'b');
  header.token_id[3] = -1;
  header.token_position = {0, 1, 2, 3, 10, 11, 12, 13};
  header.token_flags[0] = 0x8001;
  header.flags_known = 0x8005;
  header.token_logprob.assign(8, -0.5F);
  header.segments[1].turn = 3;
  header.segments[0].role = 2;
  header.passes[1].start_ns = 1234567890123;
  header.passes[1].dur_ns = 42;
  header.layer_ns.assign(3 * 2, 1.5F);
  header.attn_ns.assign(3 * 2, 0.25F);
  header.text_offset = {0, 1, 2, 2, 5, 6, 7, 8, 9};
  header.text_bytes = std::string("ab\xf0\x9f\0cdef", 9);
  header.query_token = {1, 5, 6, 7};

  const Scratch scratch;
  trace::write_trace(scratch.file("a.h5"), trace::MemoryTrace(header));
  const auto file = trace::open_trace(scratch.file("a.h5"));
  const trace::Header& read = file->header();
  CHECK(read.file_uuid == header.file_uuid);
  CHECK(read.created_utc == header.created_utc);
  CHECK(read.writer == header.writer);
  const trace::Model& m = read.model;
  CHECK(m.name == model.name);
  CHECK(m.revision == model.revision);
  CHECK(m.model_type == model.model_type);
  CHECK(m.architecture == model.architecture);
  CHECK(std::vector{m.n_layers, m.n_q_heads, m.n_kv_heads, m.head_dim, m.v_head_dim, m.rotary_dim,
                    m.hidden_size, m.vocab_size} == std::vector<std::uint32_t>{2, 4, 2, 8, 4, 4, 33, 77});
  CHECK(std::vector{m.attn_scale, m.norm_eps, m.rope_theta, m.rope_attention_factor, m.logit_softcap} ==
        std::vector{0.3, 1e-5, 10000.0, 1.25, 50.0});
  CHECK(m.rope_type == "llama3");
  CHECK(m.rope_layout == "interleaved");
  CHECK((m.qk_norm && !m.qkv_bias && m.tied_embeddings));
  CHECK(m.weights_sha256 == model.weights_sha256);
  CHECK(m.layer_window == model.layer_window);
  CHECK(m.inv_freq == model.inv_freq);
  CHECK(m.config_json == model.config_json);
  const trace::Capture& c = read.capture;
  CHECK(std::vector{c.source, c.device_name, c.device_kind, c.cpu_model, c.compute_dtype, c.accum_dtype,
                    c.math_mode} ==
        std::vector<std::string>{"native-cpu", "cpu0", "cpu", "some processor", "f32", "f64", "strict"});
  CHECK(std::vector{c.attention_kernel, c.software, c.sampling, c.q_policy, c.row_policy, c.verified} ==
        std::vector<std::string>{"eager", "libfoo 1.2", "greedy", "window:3", "none", "gate A 1e-6"});
  CHECK(c.driver == "550.54.14");
  CHECK(c.cuda_version == "12.4");
  CHECK(c.rank == "1 of 4");
  CHECK(std::vector{c.workload, c.workload_item} ==
        std::vector<std::string>{"needle-multi-key", "needle-multi-key-500-s1-0"});
  CHECK((c.threads == 7 && c.prefill_chunk == 512 && c.seed == 0xfedcba9876543210ULL));
  CHECK((!c.rope_fp32 && c.teacher_forced));
  CHECK(read.tokenizer_name == "tok");
  CHECK(read.tokenizer_sha256 == header.tokenizer_sha256);
  CHECK(read.token_id == header.token_id);
  CHECK(read.token_segment == header.token_segment);
  CHECK(read.token_position == header.token_position);
  CHECK(read.token_flags == header.token_flags);
  CHECK(read.flags_known == 0x8005);
  CHECK(read.token_logprob == header.token_logprob);
  REQUIRE(read.segments.size() == 2);
  const trace::Segment& s = read.segments[1];
  CHECK((s.parent == 0 && s.begin == 6 && s.count == 2 && s.path_len == 6 && s.turn == 3));
  CHECK((s.phase == trace::Phase::decode && read.segments[0].role == 2));
  CHECK(read.sequence_leaf == header.sequence_leaf);
  REQUIRE(read.passes.size() == 3);
  const trace::Pass& p = read.passes[1];
  CHECK(
      (p.segment == 1 && p.begin == 6 && p.q_len == 1 && p.past_len == 6 && p.phase == trace::Phase::decode));
  CHECK((p.start_ns == 1234567890123 && p.dur_ns == 42));
  CHECK(read.layer_ns == header.layer_ns);
  CHECK(read.attn_ns == header.attn_ns);
  CHECK(read.text_offset == header.text_offset);
  CHECK(read.text_bytes == header.text_bytes);
  CHECK(read.query_token == header.query_token);
  CHECK(read.attention_token.empty());
  CHECK(read.elem == Elem::bf16);
  CHECK_FALSE(read.output_elem.has_value());
}

TEST_CASE("rotations per layer are read back, of a file that older readers refuse") {
  trace::Header header = header_of(Elem::f32, 6, 2);
  trace::Model& model = header.model;
  model.rotary_dim = 4;
  model.inv_freq = {1.0F, 0.01F, 0.5F, 0.125F};
  model.rotation_factor = {1, 1.25};
  model.layer_rotation = {1, 0};
  const Scratch scratch;
  trace::write_trace(scratch.file("a.h5"), trace::MemoryTrace(header));
  const auto file = trace::open_trace(scratch.file("a.h5"));
  const trace::Model& read = file->header().model;
  CHECK(std::vector(read.rotary(0).inv_freq.begin(), read.rotary(0).inv_freq.end()) ==
        std::vector{0.5F, 0.125F});
  CHECK(read.rotary(0).attention_factor == 1.25);
  CHECK(read.layer_rotation == model.layer_rotation);
  CHECK(read.rotation_factor == model.rotation_factor);
  CHECK(std::ranges::count(attributes_of(scratch.file("a.h5"), "/"), "needs") == 1);

  // Frequencies of 0 say that there is no rotation; a factor would then say nothing.
  model.inv_freq = {1.0F, 0.01F, 0, 0};
  CHECK_THROWS_WITH(trace::write_trace(scratch.file("b.h5"), trace::MemoryTrace(header)),
                    Catch::Contains("rotation_factor[1]") && Catch::Contains("the rotation is none"));
  model.rotation_factor = {1.25, 1};
  trace::write_trace(scratch.file("b.h5"), trace::MemoryTrace(header));
  const auto unrotated = trace::open_trace(scratch.file("b.h5"));
  CHECK((!trace::rotates(unrotated->header().model, 0) && trace::rotates(unrotated->header().model, 1)));

  model.layer_rotation = {2, 0};
  CHECK_THROWS_WITH(trace::write_trace(scratch.file("b.h5"), trace::MemoryTrace(header)),
                    Catch::Contains("layer_rotation") && Catch::Contains("is not below n_rotations"));
}

TEST_CASE("sinks are read back, of a file that older readers refuse") {
  trace::Header header = header_of(Elem::f32, 6, 2);
  trace::Model& model = header.model;
  for (std::uint32_t i = 0; i < model.n_layers * model.n_q_heads; ++i)
    model.sinks.push_back(static_cast<float>(i) / 4 - 1);
  const Scratch scratch;
  trace::write_trace(scratch.file("a.h5"), trace::MemoryTrace(header));
  const auto file = trace::open_trace(scratch.file("a.h5"));
  CHECK(file->header().model.sinks == model.sinks);
  CHECK(file->header().model.sink(1, 2) == model.sinks[model.n_q_heads + 2]);
  CHECK(std::ranges::count(attributes_of(scratch.file("a.h5"), "/"), "needs") == 1);
  model.sinks[3] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH(trace::write_trace(scratch.file("b.h5"), trace::MemoryTrace(header)),
                    Catch::Contains("/model/sinks[3]") && Catch::Contains("is not finite"));
  model.sinks.pop_back();
  CHECK_THROWS_WITH(trace::write_trace(scratch.file("b.h5"), trace::MemoryTrace(header)),
                    Catch::Contains("/model/sinks"));
}

TEST_CASE("chunks are read back, of a file that older readers refuse") {
  trace::Header header = header_of(Elem::f32, 6, 2);
  trace::Model& model = header.model;
  model.layer_window = {-1, 4};
  model.chunked = true;
  const Scratch scratch;
  trace::write_trace(scratch.file("a.h5"), trace::MemoryTrace(header));
  const auto file = trace::open_trace(scratch.file("a.h5"));
  const trace::Model& read = file->header().model;
  CHECK((read.chunked && read.layer_window == model.layer_window));
  CHECK(std::ranges::count(attributes_of(scratch.file("a.h5"), "/"), "needs") == 1);
  // Keys 4 to 7 are seen by queries 4 to 7 alone; with a window of 4, key 4 by queries 4 to 7, too.
  CHECK((read.first_seen(1, 3) == 0 && read.first_seen(1, 4) == 4 && read.first_seen(1, 7) == 4));
  CHECK((read.seen_until(1, 6, 20) == 8 && read.seen_until(1, 6, 7) == 7 && read.seen_until(0, 6, 20) == 20));
  model.chunked = false;
  CHECK((model.first_seen(1, 3) == 0 && model.first_seen(1, 4) == 1 && model.first_seen(1, 7) == 4));
  CHECK((model.seen_until(1, 6, 20) == 10 && model.seen_until(1, 6, 7) == 7));
}

TEST_CASE("values that are in keys are stored once, in a file that older readers refuse") {
  for (const Elem elem : {Elem::f32, Elem::bf16}) {
    trace::Header header = header_of(elem, 6, 2);
    trace::Model& model = header.model;
    model.values_in_keys = true;
    model.v_head_dim = model.head_dim - 2;
    model.rotary_dim = 2;
    model.first_rotated = model.v_head_dim;
    model.inv_freq = {0.5F};
    trace::MemoryTrace made(header);
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
      for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
        float x = static_cast<float>(layer + head);
        for (float& component : made.rows(trace::Tensor::key, layer, head)) component = x += 0.5F;
      }
    const Scratch scratch;
    trace::write_trace(scratch.file("a.h5"), made);
    const auto file = trace::open_trace(scratch.file("a.h5"));
    CHECK((file->header().model.values_in_keys && file->header().model.first_rotated == model.v_head_dim));
    CHECK(file->header().model.rotary(0).first == model.v_head_dim);
    std::vector<float> keys(3 * model.head_dim), values(3 * model.v_head_dim);
    for (const trace::Source* source :
         {static_cast<const trace::Source*>(file.get()), static_cast<const trace::Source*>(&made)}) {
      source->read(trace::Tensor::key, 1, 0, 2, 3, keys);
      source->read(trace::Tensor::value, 1, 0, 2, 3, values);
      for (std::size_t row = 0; row < 3; ++row)
        for (std::size_t c = 0; c < model.v_head_dim; ++c)
          CHECK(values[row * model.v_head_dim + c] == keys[row * model.head_dim + c]);
    }
    Progress progress;
    CHECK(trace::check_trace(scratch.file("a.h5"), progress).problems.empty());
    CHECK(std::ranges::count(attributes_of(scratch.file("a.h5"), "/"), "needs") == 1);
  }
  trace::Header header = header_of(Elem::f32, 6, 2);
  header.model.first_rotated = 2;
  CHECK_THROWS_WITH(trace::MemoryTrace(header), Catch::Contains("first_rotated"));
}

TEST_CASE("attention rows are packed one after another, per layer") {
  const Scratch scratch;
  trace::Header header = header_of(Elem::f32, 5, 2);
  header.attention_token = {3, 6};
  header.capture.row_policy = "window:2";
  const trace::MemoryTrace made(header);
  trace::Writer writer(scratch.file("a.h5"), header);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (const Tensor tensor : kTensors)
      writer.append(tensor, layer, 7,
                    std::vector<float>(heads_of(header.model, tensor) * 7 * dim_of(header.model, tensor)));
    // Token 3 sees keys 0..3; token 6 sees 0..6, of which layer 1 (a window of 4) stores 3..6.
    const std::uint64_t first = layer == 0 ? 0 : 3;
    std::vector<float> three, six;
    for (std::uint32_t head = 0; head < 4; ++head) {
      for (int key = 0; key < 4; ++key) three.push_back(0.25F);
      for (std::uint64_t key = first; key < 7; ++key) six.push_back(static_cast<float>(head * 100 + key));
    }
    writer.append_attention(layer, 0, 4, three);
    writer.append_attention(layer, first, 7 - first, six);
  }
  writer.finish(header);

  const trace::FileTrace file(scratch.file("a.h5"), {});
  CHECK(file.header().attention_token == header.attention_token);
  REQUIRE(file.attention().size() == 2);
  CHECK(file.attention()[0].ptr == std::vector<std::uint64_t>{0, 4, 11});
  CHECK(file.attention()[0].first_key == std::vector<std::uint64_t>{0, 0});
  CHECK(file.attention()[1].ptr == std::vector<std::uint64_t>{0, 4, 8});
  CHECK(file.attention()[1].first_key == std::vector<std::uint64_t>{0, 3});
  std::vector<float> packed(8);
  file.attention()[1].p.read(2, 0, 8, packed.data());
  CHECK(packed == std::vector<float>{0.25F, 0.25F, 0.25F, 0.25F, 203, 204, 205, 206});
}

TEST_CASE("a trace whose header announces other rows than were appended is not finished") {
  const Scratch scratch;
  const trace::Header header = header_of(Elem::f32, 3, 0);
  const auto expect_refusal = [&](const trace::Header& final, std::uint64_t key_rows, const char* text) {
    trace::Writer writer(scratch.file("a.h5"), header);
    for (std::uint32_t layer = 0; layer < 2; ++layer)
      for (const Tensor tensor : kTensors) {
        const std::uint64_t n = tensor == Tensor::key ? key_rows : 3;
        writer.append(tensor, layer, n,
                      std::vector<float>(heads_of(header.model, tensor) * n * dim_of(header.model, tensor)));
      }
    CHECK_THROWS_WITH(writer.finish(final), Catch::Contains(text));
  };
  expect_refusal(header, 2, "/layers/0000/k: has 2 rows, not 3");
  trace::Header windowed = header;
  windowed.query_token = {2};
  expect_refusal(windowed, 3, "/layers/0000/q: has 3 rows, not 1");
  trace::Header with_rows = header;
  with_rows.attention_token = {2};
  expect_refusal(with_rows, 3, "/layers/0000/rows: has 0 rows, not 1");
  CHECK(std::filesystem::is_empty(scratch.file("")));
}

}  // namespace kvsim::test::test_roundtrip
