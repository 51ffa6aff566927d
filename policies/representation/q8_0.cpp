// llama.cpp's 8-bit cache.
#include "policies/parts/codes/llama_blocks.hpp"

namespace kvsim::policy::q8_0 {

PolicySpec spec() {
  const LlamaType type = LlamaType::named("q8_0");
  PolicySpec spec = llama_spec([type](const Params&) { return LlamaTypes{type, type}; });
  spec.name = "q8_0";
  spec.summary = "8 bits and a 16-bit scale per 32 numbers, as llama.cpp's cache";
  spec.paper = "llama.cpp, --cache-type-k q8_0 --cache-type-v q8_0, https://github.com/ggml-org/llama.cpp";
  spec.details =
      "32 neighbouring numbers of a vector share the scale (largest |x|) / 127; codes round to nearest, "
      "halves away from 0. 8.5 bits per number.";
  return spec;
}

}  // namespace kvsim::policy::q8_0
