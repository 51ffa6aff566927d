// Compares replay with its physical limit: the causal Q K^T that it needs.
//
// A synthetic trace in bf16 of 4,096 tokens, d = 128 (4,032 prompt, 64 decode), one layer, one KV head per
// thread, group of 4. The baseline computes the same lower-triangular Q K^T blocks for the same heads on the
// same threads and nothing else.
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <sys/resource.h>

#include <Eigen/Core>
#include <cstdlib>
#include <string>

#include "tests/bench/paired.hpp"
#include "tests/bench/replay_cells.hpp"

using namespace kvsim;
using namespace kvsim::bench;

namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void bare_gemm(const trace::MemoryTrace& trace, unsigned threads) {
  const trace::Model& model = trace.header().model;
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  const auto dim = static_cast<Eigen::Index>(model.head_dim);
  const auto length = static_cast<Eigen::Index>(trace.header().n_tokens());
  constexpr Eigen::Index kBlock = 64;
  tbb::parallel_for(std::uint32_t{0}, model.n_kv_heads, [&](std::uint32_t lane) {
    RowMajor keys(length, dim), queries(kBlock, dim), scores(kBlock, length);
    trace.read(trace::Tensor::key, 0, lane, 0, trace.header().n_tokens(),
               {keys.data(), static_cast<std::size_t>(keys.size())});
    float sink = 0;
    for (Eigen::Index first = 0; first < length; first += kBlock) {
      const Eigen::Index n = std::min(kBlock, length - first);
      for (std::uint32_t g = 0; g < model.group(); ++g) {
        trace.read(trace::Tensor::query, 0, lane * model.group() + g, static_cast<std::uint64_t>(first),
                   static_cast<std::uint64_t>(n), {queries.data(), static_cast<std::size_t>(n * dim)});
        scores.topLeftCorner(n, first + n).noalias() =
            queries.topRows(n) * keys.topRows(first + n).transpose();
        sink += scores(n - 1, first);
      }
    }
    if (sink == 12345.678F) std::puts("");  // uses the result
  });
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 7;
  const std::string eight = "5%,10%,15%,20%,25%,30%,40%,50%";
  const std::vector<std::string> lane_policies = {"window", "streaming_llm",   "random", "l2_norm",
                                                  "h2o",    "tova(unit=lane)", "snapkv", "snapkv(window=16)"};
  const std::vector<std::string> all_policies = {"window", "streaming_llm", "random", "l2_norm",
                                                 "h2o",    "tova",          "snapkv", "pyramidkv"};

  const double before = peak_mib();
  const trace::MemoryTrace one = make(1, 4096);
  const double lane_mib = static_cast<double>(one.header().n_tokens()) * 2 * 128 * 4 / 1048576;
  const double with_trace = peak_mib();
  run(one, study(lane_policies, eight, 1));
  std::printf(
      "peak memory of 64 cells on one lane: %.0f MiB above the trace (process %.0f, trace %.0f); K and V of "
      "a lane are %.0f MiB, one float row block is 1 MiB\n",
      peak_mib() - with_trace, before, with_trace - before, lane_mib);

  report("64 cells (8 policies x 8 budgets), 1 lane, 1 thread / bare QK^T",
         paired([&] { run(one, study(lane_policies, eight, 1)); }, [&] { bare_gemm(one, 1); }, pairs));
  report("8 cells (8 policies x 1 budget), 1 lane / bare QK^T",
         paired([&] { run(one, study(lane_policies, "20%", 1)); }, [&] { bare_gemm(one, 1); }, pairs));
  report("1 cell (h2o 20%), 1 lane / bare QK^T",
         paired([&] { run(one, study({"h2o"}, "20%", 1)); }, [&] { bare_gemm(one, 1); }, pairs));
  const trace::MemoryTrace floats = make(1, 4096, Elem::f32);
  report("64 cells on a trace in f32 / bare QK^T",
         paired([&] { run(floats, study(lane_policies, eight, 1)); }, [&] { bare_gemm(floats, 1); }, pairs));
  report("1 cell (h2o 20%) on a trace in f32 / bare QK^T",
         paired([&] { run(floats, study({"h2o"}, "20%", 1)); }, [&] { bare_gemm(floats, 1); }, pairs));
  const trace::MemoryTrace longer = make(1, 32768);
  report("1 cell (h2o 20%) at 32K tokens / bare QK^T",
         paired([&] { run(longer, study({"h2o"}, "20%", 1)); }, [&] { bare_gemm(longer, 1); }, 1));
  const Paired many = paired([&] { run(one, study(lane_policies, eight, 1)); },
                             [&] { run(one, study({"h2o"}, "20%", 1)); }, pairs);
  report("64 cells / 1 cell (h2o 20%)", many);
  std::printf("  marginal cost of a cell: %.2f %% of the first\n", (many.ratio - 1) / 63 * 100);

  const trace::MemoryTrace answer = make(1, 4096, Elem::bf16, 1024);
  report("1 cell that cuts every 128 of 1,024 generated tokens (20%) / snapkv",
         paired([&] { run(answer, study({"periodic(base=snapkv)"}, "20%", 1)); },
                [&] { run(answer, study({"snapkv"}, "20%", 1)); }, pairs));

  const trace::MemoryTrace four = make(4, 4096);
  report("64 cells, 4 lanes, 2 threads / bare QK^T on 2 threads",
         paired([&] { run(four, study(lane_policies, eight, 2)); }, [&] { bare_gemm(four, 2); }, pairs));
  report("64 cells with layer-wide sets (tova), 4 lanes, 1 thread / bare QK^T",
         paired([&] { run(four, study(all_policies, eight, 1)); }, [&] { bare_gemm(four, 1); }, pairs));
  report("64 cells, 4 lanes: 2 threads / 1 thread",
         paired([&] { run(four, study(lane_policies, eight, 2)); },
                [&] { run(four, study(lane_policies, eight, 1)); }, pairs));
  report("bare QK^T, 4 lanes: 2 threads / 1 thread",
         paired([&] { bare_gemm(four, 2); }, [&] { bare_gemm(four, 1); }, pairs));
  return 0;
}
