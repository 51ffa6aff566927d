#include "sim/cost/encoding.hpp"

#include <algorithm>

#include "sim/base/quoted.hpp"
#include "sim/base/suggest.hpp"
#include "sim/cost/checked.hpp"

namespace kvsim::cost {
namespace {

constexpr std::uint64_t kResidualBits = 16;

std::uint64_t residual_tokens(const Encoding& encoding, std::uint64_t tokens) {
  if (encoding.residual == 0) return 0;
  return encoding.residual_rule == Encoding::Residual::latest ? std::min(tokens, encoding.residual)
                                                              : tokens % encoding.residual;
}

/// Returns the bits of `tokens` vectors that are all encoded.
std::uint64_t packed_bits(const Encoding& encoding, std::uint64_t tokens, std::uint64_t dim) {
  constexpr const char* kWhat = "encoded keys and values";
  const std::uint64_t payload = checked_product(kWhat, tokens, dim, encoding.bits);
  if (encoding.group == 0) return payload;
  const bool by_vector = encoding.grouping == Encoding::Grouping::vector;
  const std::uint64_t groups = by_vector ? checked_product(kWhat, tokens, ceil_divided(dim, encoding.group))
                                         : checked_product(kWhat, dim, ceil_divided(tokens, encoding.group));
  return checked_sum(kWhat, payload, checked_product(kWhat, groups, encoding.group_bits));
}

std::uint64_t packed_bytes(const Encoding& encoding, std::uint64_t tokens, std::uint64_t dim) {
  return ceil_divided(packed_bits(encoding, tokens, dim), 8);
}

/// KIVI with groups of 32 and a residual of 128: keys per channel, values per token.
KvEncoding kivi(std::uint64_t bits) {
  const Encoding values{.bits = bits, .group = 32, .group_bits = 32, .residual = 128};
  Encoding keys = values;
  keys.grouping = Encoding::Grouping::channel;
  keys.residual_rule = Encoding::Residual::remainder;
  return {
      .name = "kivi" + std::to_string(bits),
      .source = "Liu et al. 2024, KIVI: asymmetric 2-bit quantization for KV cache (group 32, residual 128)",
      .keys = keys,
      .values = values};
}

KvEncoding alike(const char* name, const char* source, const Encoding& encoding) {
  return {.name = name, .source = source, .keys = encoding, .values = encoding};
}

}  // namespace

std::uint64_t encoded_bytes(const Encoding& encoding, std::uint64_t tokens, std::uint64_t dim) {
  const std::uint64_t residual = residual_tokens(encoding, tokens);
  return checked_sum("encoded keys and values", packed_bytes(encoding, tokens - residual, dim),
                     checked_product("encoded keys and values", residual, dim, kResidualBits / 8));
}

std::uint64_t empty_bytes(const Encoding& encoding, std::uint64_t tokens, std::uint64_t empty,
                          std::uint64_t dim) {
  const std::uint64_t encoded = tokens - residual_tokens(encoding, tokens);
  return packed_bytes(encoding, checked_sum("empty slots", encoded, empty), dim) -
         packed_bytes(encoding, encoded, dim);
}

const std::vector<KvEncoding>& known_encodings() {
  static const std::vector<KvEncoding> kEncodings{
      alike("fp16", "16 bits per element; bf16 is as large", {}),
      alike("fp32", "32 bits per element", {.bits = 32}),
      alike("fp8", "vLLM, one scale per tensor", {.bits = 8}),
      alike("int8", "vLLM, a 32-bit scale per token and head",
            {.bits = 8, .group = kWholeVector, .group_bits = 32}),
      alike("nvfp4", "NVIDIA NVFP4: blocks of 16 share an 8-bit scale",
            {.bits = 4, .group = 16, .group_bits = 8}),
      alike("flexgen4", "Sheng et al. 2023, FlexGen: groups of 64 share a 16-bit scale and minimum",
            {.bits = 4, .group = 64, .group_bits = 32}),
      kivi(2),
      kivi(4),
  };
  return kEncodings;
}

KvEncoding find_encoding(std::string_view name) {
  std::vector<std::string> names;
  for (const KvEncoding& encoding : known_encodings()) {
    if (encoding.name == name) return encoding;
    names.push_back(encoding.name);
  }
  if (name == "bf16") return find_encoding("fp16");
  usage_error("unknown encoding of keys and values " + quoted(name), {}, suggestion(name, names));
}

}  // namespace kvsim::cost
