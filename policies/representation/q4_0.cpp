// llama.cpp's 4-bit cache.
#include "policies/parts/codes/llama_blocks.hpp"

namespace kvsim::policy::q4_0 {

PolicySpec spec() {
  const LlamaType type = LlamaType::named("q4_0");
  PolicySpec spec = llama_spec([type](const Params&) { return LlamaTypes{type, type}; });
  spec.name = "q4_0";
  spec.summary = "4 bits and a 16-bit scale per 32 numbers, as llama.cpp's cache";
  spec.paper = "llama.cpp, --cache-type-k q4_0 --cache-type-v q4_0, https://github.com/ggml-org/llama.cpp";
  spec.details =
      "32 neighbouring numbers of a vector share a scale, by which the one furthest from 0 is -8; the "
      "others are whole numbers up to 7, halves rounded up. 4.5 bits per number.";
  return spec;
}

}  // namespace kvsim::policy::q4_0
