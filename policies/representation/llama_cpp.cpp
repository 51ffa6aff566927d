// llama.cpp's cache with a type for keys and one for values.
#include "policies/parts/codes/llama_blocks.hpp"

namespace kvsim::policy::llama_cpp {
namespace {

ParamSpec type_param(const char* name, const char* fallback, const char* help) {
  return choice_param(name, fallback, {std::begin(LlamaType::kNames), std::end(LlamaType::kNames)}, help);
}

}  // namespace

PolicySpec spec() {
  PolicySpec spec = llama_spec([](const Params& params) {
    return LlamaTypes{LlamaType::named(params.word("keys")), LlamaType::named(params.word("values")),
                      params.flag("rotate")};
  });
  spec.name = "llama_cpp";
  spec.summary = "keys in one of llama.cpp's types, values in another";
  spec.paper = "llama.cpp, --cache-type-k, --cache-type-v, https://github.com/ggml-org/llama.cpp";
  spec.details =
      "As -ctk and -ctv: keys in 8 bits and values in 4 by default. 32 neighbouring numbers share a 16-bit scale (q8_0, q5_0, "
      "q4_0: 8.5, 5.5 and 4.5 bits per number), and a 16-bit least number, from which codes count (q5_1, q4_1: 6 and 5). "
      "With `rotate` keys behind their rotary embedding and values go through a Walsh-Hadamard transform first, as "
      "llama.cpp does since April 2026 (pull request 21038): keys over the largest power of two from 64 on that divides a head, "
      "values in blocks of 64; heads that 64 does not divide, and 16-bit floats, are left as they are.";
  spec.params = {type_param("keys", "q8_0", "type of the keys, -ctk"),
                 type_param("values", "q4_0", "type of the values, -ctv"),
                 flag_param("rotate", "false", "mixes the numbers of a head before they are coded")};
  return spec;
}

}  // namespace kvsim::policy::llama_cpp
