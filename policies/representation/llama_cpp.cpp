// llama.cpp's cache with a type for keys and one for values.
#include "policies/parts/codes/llama_blocks.hpp"

namespace kvsim::policy::llama_cpp {
namespace {

ParamSpec type_param(const char* name, const char* fallback, const char* help) {
  return choice_param(name, fallback, {"f16", "q8_0", "q4_0"}, help);
}

}  // namespace

PolicySpec spec() {
  PolicySpec spec = llama_spec([](const Params& params) {
    return LlamaTypes{LlamaType::named(params.word("keys")), LlamaType::named(params.word("values"))};
  });
  spec.name = "llama_cpp";
  spec.summary = "keys in one of llama.cpp's types, values in another";
  spec.paper = "llama.cpp, --cache-type-k, --cache-type-v, https://github.com/ggml-org/llama.cpp";
  spec.details =
      "As -ctk and -ctv: keys in 8 bits and values in 4 by default. The types are those of q8_0 and q4_0, "
      "and 16-bit floats; the two sides take 8.5, 4.5 and 16 bits per number.";
  spec.params = {type_param("keys", "q8_0", "type of the keys, -ctk"),
                 type_param("values", "q4_0", "type of the values, -ctv")};
  return spec;
}

}  // namespace kvsim::policy::llama_cpp
