// Compares tokenizing with Hugging Face tokenizers; tests/bench/bench_tokenizer.py runs it and gives both the
// same text. Alone: bench_tokenizer FOLDER TEXT... prints, for each text, seconds (the best of three) and
// tokens.
#include <chrono>
#include <cstdio>

#include "sim/base/files.hpp"
#include "traces/model/tokenizer.hpp"

int main(int argc, char** argv) {
  using namespace kvsim;
  using Clock = std::chrono::steady_clock;
  if (argc < 3) {
    std::fprintf(stderr, "bench_tokenizer FOLDER TEXT...\n");
    return 2;
  }
  const model::Tokenizer tokenizer = model::load_tokenizer(argv[1]);
  for (int i = 2; i < argc; ++i) {
    const std::string text = read_file(argv[i], model::kMaxTextBytes);
    double best = 1e9;
    std::size_t tokens = 0;
    for (int turn = 0; turn < 3; ++turn) {
      const Clock::time_point start = Clock::now();
      tokens = tokenizer.encode(text).size();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::printf("%.6f %zu\n", best, tokens);
  }
}
