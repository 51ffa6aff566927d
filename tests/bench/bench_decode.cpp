// A token alone: its attention against reading the keys and values that it attends once, in the shape of
// SmolLM2-135M (30 layers of 9 query and 3 KV heads of 64) after 4,000 tokens. With a model, whole steps of
// it after N random tokens, too.
//
//   bench_decode [PAIRS] [--model PATH] [--tokens N] [--threads T]    (T: 1 and 2, unless it is given)
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "sim/base/half.hpp"
#include "sim/base/rng.hpp"
#include "tests/bench/model_setup.hpp"
#include "tests/bench/paired.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/cpu/kernels.hpp"
#include "traces/model/cpu/wide.hpp"

using namespace kvsim;
namespace cpu = model::cpu;

namespace {

constexpr std::uint32_t kLayers = 30, kHeads = 9, kKvHeads = 3, kDim = 64;

std::vector<float> normals(std::size_t count, std::uint64_t seed) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(normal(combine({seed, i})));
  return out;
}

/// Keys and values of all layers in a type, and a token's attention over them.
class Caches {
 public:
  Caches(std::uint64_t tokens, Elem elem)
      : tokens_(tokens),
        elem_(elem),
        layer_(kKvHeads * tokens * kDim * elem_bytes(elem)),
        bytes_(2 * kLayers * layer_) {
    const std::vector<float> floats = normals(kKvHeads * tokens * kDim, 1);
    for (std::size_t i = 0; i < 2 * kLayers; ++i)
      narrow(elem, floats.data(), floats.size(), bytes_.data() + i * layer_);
  }

  void attend(Workers& workers) {
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const std::byte* keys = bytes_.data() + 2 * layer * layer_;
      cpu::attend(
          workers,
          {kHeads, kKvHeads, kDim, -1, tokens_ - 1, 1, queries_.data(), keys, keys + layer_, tokens_, elem_},
          out_.data(), 1, [](auto...) {});
    }
  }

  /// Reads every byte once, eight registers of sums wide and two pages ahead.
  void read() {
    cpu::Wide sums[8] = {};
    constexpr std::size_t kAtOnce = sizeof sums;
    for (std::size_t at = 0; at + kAtOnce <= bytes_.size(); at += kAtOnce)
      for (std::size_t i = 0; i < 8; ++i) {
        const std::byte* from = bytes_.data() + at + i * sizeof(cpu::Wide);
        __builtin_prefetch(from + 8192);
        sums[i] += cpu::load_stored<Elem::f32>(from);
      }
    for (const cpu::Wide& sum : sums) read_ = read_ + cpu::sum_of(sum);
  }

 private:
  std::uint64_t tokens_;
  Elem elem_;
  std::size_t layer_;  // bytes of one layer's keys
  std::vector<std::byte> bytes_;
  std::vector<float> queries_ = normals(kHeads * kDim, 2), out_ = std::vector<float>(kHeads * kDim);
  volatile float read_ = 0;
};

/// Seconds of a step after `tokens` random ones, and of all threads' processors.
void report_steps(const bench::ModelSetup& setup, Elem elem, unsigned threads) {
  constexpr int kSteps = 32;
  const model::ModelConfig config = model::load_model_config(setup.model);
  const model::Checkpoint checkpoint(setup.model);
  const model::Weights weights = model::load_weights(checkpoint, config);
  cpu::CpuRun run(config, weights, {setup.tokens + kSteps + 1, elem, threads});
  const std::vector<float> rows = normals(setup.tokens * config.head_dim, 3);
  for (std::uint32_t layer = 0; layer < config.n_layers; ++layer)
    for (std::uint32_t head = 0; head < config.n_kv_heads; ++head) run.resume(layer, head, rows, rows);
  model::RunObserver nobody;
  const auto step = [&] {
    const std::int32_t token = 11;
    run.forward({&token, 1}, nobody);
    run.logits();
  };
  step();
  const std::clock_t before = std::clock();
  const double wall = bench::seconds([&] {
    for (int i = 0; i < kSteps; ++i) step();
  });
  std::printf("a step after %llu tokens, %s, %u threads: %.1f ms, %.1f ms of processors\n",
              static_cast<unsigned long long>(setup.tokens),
              elem == Elem::f32   ? "f32"
              : elem == Elem::f16 ? "f16"
                                  : "bf16",
              threads, wall / kSteps * 1e3,
              static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC / kSteps * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::ModelSetup setup = bench::parse(argc, argv, {.tokens = 4000});
  for (const auto& [elem, name] : {std::pair{Elem::f32, "f32"}, {Elem::f16, "f16"}, {Elem::bf16, "bf16"}}) {
    Caches caches(setup.tokens, elem);
    Workers one(1), two(2);
    if (setup.pairs > 0)
      bench::report((std::string("attention of a token, ") + name + " / reading keys and values").c_str(),
                    bench::paired([&] { caches.attend(one); }, [&] { caches.read(); }, setup.pairs));
    if (elem == Elem::f32 && setup.pairs > 0)
      bench::report("attention of a token, f32: 2 threads / 1 thread",
                    bench::paired([&] { caches.attend(two); }, [&] { caches.attend(one); }, setup.pairs));
  }
  if (setup.model.empty()) return 0;
  for (const Elem elem : {Elem::f32, Elem::f16})
    for (const unsigned threads : {1U, 2U})
      if (setup.threads == 0 || setup.threads == threads) report_steps(setup, elem, threads);
  return 0;
}
