// Compares kvsim capture on a CUDA device with the processor, from the checkpoint to replay.
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/base/error.hpp"
#include "tests/support/source_folder.hpp"
#include "tests/support/study.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/capture/capture.hpp"
#include "traces/format/check.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::capture {
namespace {

/// Options for thirty prompt tokens of the sample model and six generated ones.
CaptureOptions sample(const test::Scratch& scratch, const std::string& device) {
  CaptureOptions options;
  options.model_dir = test::source_folder() + "/traces/sample/model";
  options.tokens_file = scratch.file("ids.txt");
  options.output = scratch.file(device + ".h5");
  options.device = device;
  options.max_new_tokens = 6;
  options.ignore_eos = true;
  options.prefill_chunk = 12;
  std::ofstream ids(options.tokens_file);
  for (int i = 0; i < 30; ++i) ids << 5 + (i * 37) % 900 << '\n';
  return options;
}

std::unique_ptr<trace::Source> captured(const CaptureOptions& options) {
  Progress progress;
  run_capture(options, progress);
  return trace::open_trace(options.output);
}

/// Frobenius norm of the difference of a tensor over that of `b`, all layers and heads together.
double relative_difference(const trace::Source& a, const trace::Source& b, trace::Tensor tensor) {
  const trace::Model& model = a.header().model;
  const std::uint32_t heads = tensor == trace::Tensor::query ? model.n_q_heads : model.n_kv_heads;
  const std::uint64_t tokens = a.header().n_tokens();
  std::vector<float> x(tokens * model.head_dim), y(x);
  double error = 0, norm = 0;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    for (std::uint32_t head = 0; head < heads; ++head) {
      a.read(tensor, layer, head, 0, tokens, x);
      b.read(tensor, layer, head, 0, tokens, y);
      for (std::size_t i = 0; i < x.size(); ++i) {
        error += std::pow(double{x[i]} - double{y[i]}, 2);
        norm += std::pow(double{y[i]}, 2);
      }
    }
  }
  return std::sqrt(error / norm);
}

}  // namespace

TEST_CASE("the sample model's trace from the device replays as the processor's") {
  const test::Scratch scratch;
  CaptureOptions on_cpu = sample(scratch, "cpu"), on_cuda = sample(scratch, "cuda");
  on_cpu.elem = on_cuda.elem = "f32";
  on_cuda.compute = "f32";
  const auto cpu = captured(on_cpu), cuda = captured(on_cuda);
  const trace::Header& header = cuda->header();
  REQUIRE(header.token_id == cpu->header().token_id);  // greedy, so the choices of all six steps agree
  CHECK(header.capture.source == "native-cuda");
  CHECK(header.capture.device_kind == "cuda");
  CHECK(header.capture.compute_dtype == "f32");
  CHECK(header.layer_ns.size() == header.passes.size() * header.model.n_layers);
  CHECK(header.attn_ns.size() == header.layer_ns.size());
  for (const trace::Tensor tensor : {trace::Tensor::query, trace::Tensor::key, trace::Tensor::value})
    CHECK(relative_difference(*cuda, *cpu, tensor) <= 1e-5);
  for (std::uint64_t t = 30; t < header.n_tokens(); ++t)
    CHECK(header.token_logprob[t] == Approx(cpu->header().token_logprob[t]).margin(1e-4));

  Progress progress;
  CHECK(trace::check_trace(on_cuda.output, progress).problems.empty());
  const sim::Request request = test::request_of({"streaming_llm", "h2o", "snapkv"}, {"12"});
  const sim::Outcome a = test::run(*cuda, request), b = test::run(*cpu, request);
  for (std::size_t cell = 0; cell < a.cells.size(); ++cell) {
    const std::vector<double> got = test::numbers(a.cells[cell]), expected = test::numbers(b.cells[cell]);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(1e-4));
  }
}

TEST_CASE("slim traces from the device hold the column sums computed there") {
  const test::Scratch scratch;
  CaptureOptions on_cpu = sample(scratch, "cpu"), on_cuda = sample(scratch, "cuda");
  for (CaptureOptions* options : {&on_cpu, &on_cuda}) {
    options->elem = options->compute = "f32";
    options->queries = {.all = false, .window = 5};
  }
  const auto cpu = captured(on_cpu), cuda = captured(on_cuda);
  REQUIRE(cuda->header().counted_tokens == 30);
  REQUIRE(cuda->header().query_token == cpu->header().query_token);
  CHECK(cuda->header().query_token.size() == 5 + 6);
  Progress progress;
  CHECK(trace::check_trace(on_cuda.output, progress).problems.empty());
  std::vector<float> got(30), expected(30), got_squares(30), expected_squares(30);
  for (std::uint32_t head = 0; head < cuda->header().model.n_q_heads; ++head) {
    cuda->read_column_statistics(3, head, got, got_squares);
    cpu->read_column_statistics(3, head, expected, expected_squares);
    for (std::size_t key = 0; key < got.size(); ++key) {
      CHECK(got[key] == Approx(expected[key]).epsilon(1e-4));
      CHECK(got_squares[key] == Approx(expected_squares[key]).epsilon(1e-4));
    }
  }
}

TEST_CASE("a bf16 checkpoint runs in bf16 on the device unless told otherwise") {
  const test::Scratch scratch;
  CaptureOptions options = sample(scratch, "cuda");
  options.attention = {RowChoice::Kind::window, 4};
  const auto cuda = captured(options);
  CHECK(cuda->header().elem == Elem::bf16);
  CHECK(cuda->header().capture.compute_dtype == "bf16");
  CHECK(cuda->header().attention_token.size() == 4 + 6);
  Progress progress;
  CHECK(trace::check_trace(options.output, progress).problems.empty());
  // The processor computes the same checkpoint in float: bf16 has 8 bits, and errors add up over four layers.
  CaptureOptions on_cpu = sample(scratch, "cpu");
  on_cpu.elem = "bf16";
  on_cpu.max_new_tokens = options.max_new_tokens = 0;
  options.overwrite = true;
  const auto cpu = captured(on_cpu), prompt = captured(options);
  CHECK(relative_difference(*prompt, *cpu, trace::Tensor::key) <= 0x1p-6);
}

}  // namespace kvsim::capture
