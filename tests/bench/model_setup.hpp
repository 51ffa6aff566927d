#pragma once
/// [PAIRS] [--model PATH] [--tokens N] [--threads T] of a benchmark that runs a model.
#include <cstdint>
#include <cstdlib>
#include <string>

namespace kvsim::bench {

struct ModelSetup {
  int pairs = 7;
  std::string model{};
  std::uint64_t tokens = 0;
  unsigned threads = 0;
};

/// `setup` with what the command line says otherwise.
inline ModelSetup parse(int argc, char** argv, ModelSetup setup) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--model" && i + 1 < argc) {
      setup.model = argv[++i];
    } else if (word == "--tokens" && i + 1 < argc) {
      setup.tokens = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--threads" && i + 1 < argc) {
      setup.threads = static_cast<unsigned>(std::atoi(argv[++i]));
    } else {
      setup.pairs = std::atoi(argv[i]);
    }
  }
  return setup;
}

}  // namespace kvsim::bench
