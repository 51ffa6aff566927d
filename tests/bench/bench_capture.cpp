// Compares capture with its two limits: the matrix products that a prefill needs, and the same run without a
// trace.
//
//   bench_capture [PAIRS] [--model DIR] [--tokens N] [--threads T]
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <unistd.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "sim/base/rng.hpp"
#include "tests/bench/model_setup.hpp"
#include "tests/bench/paired.hpp"
#include "traces/capture/capture.hpp"
#include "traces/model/cpu/cpu_run.hpp"

using namespace kvsim;
using namespace kvsim::capture;

namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// The products of one pass and nothing between them: float operands in memory, each thread with a share of
/// the rows.
class BareProducts {
 public:
  BareProducts(const model::ModelConfig& config, std::uint64_t tokens, std::uint64_t chunk, unsigned threads)
      : config_(config), tokens_(tokens), chunk_(chunk), threads_(threads) {
    const auto q = static_cast<Eigen::Index>(config.n_heads * config.head_dim);
    const auto kv = static_cast<Eigen::Index>(config.n_kv_heads * config.head_dim);
    const auto hidden = static_cast<Eigen::Index>(config.hidden_size);
    const auto inner = static_cast<Eigen::Index>(config.intermediate_size);
    for (const auto& [out, in] : {std::pair{q, hidden},
                                  {kv, hidden},
                                  {kv, hidden},
                                  {hidden, q},
                                  {inner, hidden},
                                  {inner, hidden},
                                  {hidden, inner}}) {
      weights_.push_back(RowMajor::Random(out, in));
      inputs_.push_back(RowMajor::Random(static_cast<Eigen::Index>(chunk), in));
      outputs_.push_back(RowMajor::Zero(static_cast<Eigen::Index>(chunk), out));
    }
    keys_ = RowMajor::Random(static_cast<Eigen::Index>(tokens), static_cast<Eigen::Index>(config.head_dim));
    values_ = keys_;
  }

  void run() {
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads_);
    for (std::uint64_t first = 0; first < tokens_; first += chunk_) {
      const auto n = static_cast<Eigen::Index>(std::min(chunk_, tokens_ - first));
      for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer) {
        for (std::size_t i = 0; i < weights_.size(); ++i) linear(i, n);
        attention(static_cast<Eigen::Index>(first), n);
      }
    }
  }

 private:
  void linear(std::size_t i, Eigen::Index n) {
    tbb::parallel_for(0U, threads_, [&](unsigned share) {
      const Eigen::Index begin = n * share / threads_, end = n * (share + 1) / threads_;
      outputs_[i].middleRows(begin, end - begin).noalias() =
          inputs_[i].middleRows(begin, end - begin) * weights_[i].transpose();
    });
  }

  /// Computes Q K^T and P V of every query head in causal blocks of 64 queries.
  void attention(Eigen::Index past, Eigen::Index n) {
    constexpr Eigen::Index kBlock = 64;
    const auto dim = static_cast<Eigen::Index>(config_.head_dim);
    tbb::parallel_for(0U, config_.n_heads, [&](unsigned) {
      RowMajor scores(kBlock, past + n), out(kBlock, dim);
      for (Eigen::Index first = 0; first < n; first += kBlock) {
        const Eigen::Index rows = std::min(kBlock, n - first), seen = past + first + rows;
        scores.topLeftCorner(rows, seen).noalias() =
            keys_.middleRows(first, rows) * keys_.topRows(seen).transpose();
        out.topRows(rows).noalias() = scores.topLeftCorner(rows, seen) * values_.topRows(seen);
      }
    });
  }

  const model::ModelConfig& config_;
  std::uint64_t tokens_, chunk_;
  unsigned threads_;
  std::vector<RowMajor> weights_, inputs_, outputs_;
  RowMajor keys_, values_;
};

std::vector<std::int32_t> random_tokens(std::uint64_t count, std::uint32_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>(uniform01(combine({7, i})) * vocab));
  return ids;
}

class Nobody : public model::RunObserver {};

void prefill(model::cpu::CpuRun& run, std::span<const std::int32_t> tokens, std::uint64_t chunk) {
  Nobody nobody;
  for (std::uint64_t first = 0; first < tokens.size(); first += chunk)
    run.forward(tokens.subspan(first, std::min(chunk, tokens.size() - first)), nobody);
}

/// Does what run_capture does from opening the checkpoint on, except for the trace.
void run_without_trace(const bench::ModelSetup& setup, const std::vector<std::int32_t>& tokens,
                       std::uint64_t steps, std::uint64_t chunk, Elem elem) {
  const model::ModelConfig config = model::load_model_config(setup.model);
  const model::Checkpoint checkpoint(setup.model);
  const model::Weights weights = model::load_weights(checkpoint, config);
  checkpoint.sha256();
  model::cpu::CpuRun run(config, weights, {tokens.size() + steps, elem, setup.threads});
  prefill(run, tokens, chunk);
  Nobody nobody;
  for (std::uint64_t i = 0; i < steps; ++i) {
    const std::vector<float> logits = run.logits();
    const auto best =
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    run.forward({&best, 1}, nobody);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::ModelSetup setup = bench::parse(
      argc, argv, {7, KVSIM_SOURCE_DIR "/traces/sample/model", 1984, std::thread::hardware_concurrency()});
  const model::ModelConfig config = model::load_model_config(setup.model);
  const model::Checkpoint checkpoint(setup.model);
  const model::Weights weights = model::load_weights(checkpoint, config);
  constexpr std::uint64_t kSteps = 64;
  const std::uint64_t chunk = CaptureOptions{}.prefill_chunk;
  const Elem elem = weights.elem == Elem::bf16 ? Elem::bf16 : Elem::f32;
  const std::vector<std::int32_t> tokens = random_tokens(setup.tokens, config.vocab_size);
  std::printf("%s: %u layers, hidden %u, %llu prompt tokens in passes of %llu, %u threads\n",
              setup.model.c_str(), config.n_layers, config.hidden_size,
              static_cast<unsigned long long>(setup.tokens), static_cast<unsigned long long>(chunk),
              setup.threads);

  BareProducts bare(config, setup.tokens, chunk, setup.threads);
  bench::report("prefill / its matrix products alone",
                bench::paired(
                    [&] {
                      model::cpu::CpuRun run(config, weights, {setup.tokens, elem, setup.threads});
                      prefill(run, tokens, chunk);
                    },
                    [&] { bare.run(); }, setup.pairs));

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kvsim-bench-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  CaptureOptions options;
  options.model_dir = setup.model;
  options.tokens_file = folder / "tokens.txt";
  options.output = folder / "run.h5";
  options.max_new_tokens = kSteps;
  options.threads = setup.threads;
  options.overwrite = options.ignore_eos = true;
  std::ofstream list(options.tokens_file);
  for (const std::int32_t id : tokens) list << id << '\n';
  list.close();
  const auto captured = [&] {
    Progress progress;
    run_capture(options, progress);
  };
  const auto uncaptured = [&] { run_without_trace(setup, tokens, kSteps, chunk, elem); };
  bench::report("capture (prompt + 64 tokens) / the same run without a trace",
                bench::paired(captured, uncaptured, setup.pairs));
  options.queries = {.all = false, .window = 64};
  bench::report("capture with --queries window:64 / the same run without a trace",
                bench::paired(captured, uncaptured, setup.pairs));
  std::filesystem::remove_all(folder);
  return 0;
}
