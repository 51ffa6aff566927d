// Generation on request, so that another program can take turns with it (compare_torch.py).
//
//   bench_generate MODEL_DIR THREADS ELEM
//
// Reads requests "run|capture STEPS ID ID ..." from standard input, one per line, and answers each with one
// line "PREFILL_SECONDS DECODE_SECONDS ID ...": wall clock of the prompt, of STEPS greedy steps, and the
// chosen ids. `capture` also records the run as a trace in the folder for temporary files, and deletes it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

#include "sim/base/error.hpp"
#include "traces/capture/capture.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/provenance.hpp"

using namespace kvsim;
using namespace kvsim::capture;

namespace {

using Clock = std::chrono::steady_clock;

struct Model {
  explicit Model(const std::string& directory)
      : config(model::load_model_config(directory)),
        checkpoint(directory),
        weights(model::load_weights(checkpoint, config)),
        name(directory) {}
  model::ModelConfig config;
  model::Checkpoint checkpoint;
  model::Weights weights;
  std::string name;
};

/// Wall-clock seconds, and processor seconds of all threads.
struct Spent {
  double wall = 0, cpu = 0;
};

struct Times {
  Spent prefill, decode;
  std::vector<std::int32_t> chosen;
};

class Watch {
 public:
  Spent read() const {
    return {std::chrono::duration<double>(Clock::now() - wall_).count(),
            static_cast<double>(std::clock() - cpu_) / CLOCKS_PER_SEC};
  }

 private:
  Clock::time_point wall_ = Clock::now();
  std::clock_t cpu_ = std::clock();
};

std::int32_t greedy(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Times generate(model::cpu::CpuRun& run, model::RunObserver& observer, std::span<const std::int32_t> prompt,
               std::size_t steps) {
  const std::size_t chunk = CaptureOptions{}.prefill_chunk;
  Times times;
  const Watch prefill;
  for (std::size_t first = 0; first < prompt.size(); first += chunk)
    run.forward(prompt.subspan(first, std::min(chunk, prompt.size() - first)), observer);
  std::int32_t next = greedy(run.logits());
  times.prefill = prefill.read();
  const Watch decode;
  for (std::size_t step = 0; step < steps; ++step) {
    times.chosen.push_back(next);
    run.forward({&next, 1}, observer);
    next = greedy(run.logits());
  }
  times.decode = decode.read();
  return times;
}

Times serve(const Model& model, unsigned threads, Elem elem, bool captured,
            std::span<const std::int32_t> prompt, std::size_t steps) {
  model::cpu::CpuRun run(model.config, model.weights, {prompt.size() + steps, elem, threads});
  if (!captured) {
    model::RunObserver nobody;
    return generate(run, nobody, prompt, steps);
  }
  trace::Header header;
  header.model = model::describe_model(model.config, model.weights, model.name, prompt.size() + steps);
  header.capture = run.describe();
  header.elem = elem;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("kvsim-bench-" + std::to_string(::getpid()) + ".h5");
  trace::Writer writer(path, header);
  const Progress progress;
  TraceRecorder recorder(writer, progress, model.config.n_heads, {0, {}, false, ~std::uint64_t{0}});
  return generate(run, recorder, prompt, steps);
}

int answer_requests(const Model& model, unsigned threads, Elem elem) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string kind;
    std::size_t steps = 0;
    words >> kind >> steps;
    std::vector<std::int32_t> prompt;
    for (std::int32_t id; words >> id;) prompt.push_back(id);
    const Times times = serve(model, threads, elem, kind == "capture", prompt, steps);
    std::cout << times.prefill.wall << ' ' << times.decode.wall << ' ' << times.prefill.cpu << ' '
              << times.decode.cpu;
    for (const std::int32_t id : times.chosen) std::cout << ' ' << id;
    std::cout << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: bench_generate MODEL_DIR THREADS f32|bf16|f16\n", stderr);
    return 2;
  }
  const std::string elem = argv[3];
  try {
    const Model model(argv[1]);
    return answer_requests(model, static_cast<unsigned>(std::atoi(argv[2])),
                           elem == "bf16"  ? Elem::bf16
                           : elem == "f16" ? Elem::f16
                                           : Elem::f32);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
