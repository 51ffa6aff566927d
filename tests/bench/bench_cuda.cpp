// Compares capture on a CUDA device with the same run without a trace, in the same process. Needs a device:
// without one it says so and ends with 77.
//
//   bench_cuda [PAIRS] [--model DIR] [--tokens N] [--new N] [--output DIR] [--device cuda:N]
//
// For a model of realistic shape see tests/bench/cuda_1b.sh.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/bench/paired.hpp"
#include "traces/capture/capture.hpp"
#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/device.hpp"
#include "traces/model/generation.hpp"

using namespace kvsim;
using namespace kvsim::capture;

namespace {

constexpr int kNoDevice = 77;

struct Setup {
  int pairs = 5;
  std::string model = KVSIM_SOURCE_DIR "/traces/sample/model";
  std::string folder = std::filesystem::temp_directory_path();
  std::string device = "cuda";
  std::uint64_t tokens = 1536, new_tokens = 64;
};

Setup parse(int argc, char** argv) {
  Setup setup;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--model" && has_value) {
      setup.model = argv[++i];
    } else if (word == "--tokens" && has_value) {
      setup.tokens = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--new" && has_value) {
      setup.new_tokens = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--output" && has_value) {
      setup.folder = argv[++i];
    } else if (word == "--device" && has_value) {
      setup.device = argv[++i];
    } else {
      setup.pairs = std::atoi(argv[i]);
    }
  }
  return setup;
}

/// Does what run_capture does from opening the checkpoint on, except for the trace.
void run_without_trace(const Setup& setup, const std::vector<std::int32_t>& tokens, Elem compute) {
  const model::ModelConfig config = model::load_model_config(setup.model);
  const model::Checkpoint checkpoint(setup.model);
  const model::Weights weights = model::load_weights(checkpoint, config);
  model::GenerationOptions options;
  options.max_new_tokens = setup.new_tokens;
  const auto run =
      model::open_model_run(model::parse_device(setup.device), config, weights,
                            {.capacity = tokens.size() + setup.new_tokens,
                             .elem = compute,
                             .compute = compute,
                             .pass_tokens = std::min<std::uint64_t>(options.prefill_chunk, tokens.size())});
  checkpoint.sha256();
  struct Nobody : model::RunObserver {
    bool wants_tensors() const override { return false; }
  } nobody;
  Progress progress;
  model::generate(*run, tokens, options, nobody, progress);
}

void measure(const Setup& setup, const std::vector<std::int32_t>& tokens, CaptureOptions options,
             Elem compute, const std::string& what) {
  options.compute = options.elem = elem_name(compute);
  CaptureResult result;
  const bench::Paired pair = bench::paired(
      [&] {
        Progress progress;
        result = run_capture(options, progress);
      },
      [&] { run_without_trace(setup, tokens, compute); }, setup.pairs);
  bench::report((std::string(elem_name(compute)) + ", " + what + " / the same run without a trace").c_str(),
                pair);
  std::printf(
      "    %.0f prompt and %.0f generated tokens/s on the device; trace of %.1f MB, %.0f MB/s of the whole\n",
      static_cast<double>(result.prompt_tokens) / result.prefill_seconds,
      static_cast<double>(result.new_tokens) / result.decode_seconds,
      static_cast<double>(result.file_bytes) / 1e6,
      static_cast<double>(result.file_bytes) / 1e6 / pair.candidate_s);
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* why = model::cuda::no_device()) {
    std::printf("bench_cuda measures a CUDA device: %s\n", why);
    return kNoDevice;
  }
  const Setup setup = parse(argc, argv);
  const std::filesystem::path folder =
      std::filesystem::path(setup.folder) / ("kvsim-bench-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  int status = 0;
  try {
    const std::uint32_t vocab = model::load_model_config(setup.model).vocab_size;
    std::vector<std::int32_t> tokens;
    CaptureOptions options;
    options.tokens_file = folder / "tokens.txt";
    std::ofstream list(options.tokens_file);
    for (std::uint64_t i = 0; i < setup.tokens; ++i) {
      tokens.push_back(static_cast<std::int32_t>(uniform01(combine({7, i})) * vocab));
      list << tokens.back() << '\n';
    }
    list.close();
    options.model_dir = setup.model;
    options.device = setup.device;
    options.output = folder / "run.h5";
    options.max_new_tokens = setup.new_tokens;
    options.overwrite = options.ignore_eos = true;
    for (const Elem compute : {Elem::f32, Elem::bf16}) {
      measure(setup, tokens, options, compute, "every query stored");
      CaptureOptions slim = options;
      slim.queries = {.all = false, .window = 64};
      measure(setup, tokens, slim, compute, "--queries window:64");
    }
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    status = static_cast<int>(error.kind());
  }
  std::filesystem::remove_all(folder);
  return status;
}
