// Quest, TidalDecode, Double Sparsity: shares of the cache that a step reads. ReKV and others: sizes of the
// cache.
#include "sim/cost/pages.hpp"
#include "sim/cost/validation/entries.hpp"

namespace kvsim::cost {
namespace {

std::vector<Check> checks(Inputs&) {
  const Model llama = find_model("llama-2-7b"), qwen = find_model("qwen2-7b");
  Entries entries(Evidence::verified);
  entries.exact("Quest, KV cache of a 7B model at 32K", "16", "GB", cache_bytes(llama, 32768) / kGiB,
                "GB is GiB");
  constexpr std::uint64_t kContext = 65536, kChosen = 4096, kPage = 16;
  entries.exact("Quest, cache over what a step reads, pages of 16, 64K, 4K chosen", "8", "x",
                cache_bytes(llama, kContext) /
                    (cache_bytes(llama, pages_of(kContext, kPage)) + cache_bytes(llama, kChosen)),
                "a page's smallest and largest keys are as large as one token");
  entries.evidence(Evidence::derived);
  const std::uint64_t n = 32768;
  const Holding tidal{{{4, {{llama.kv_heads, n, kNoLimit}}}, {28, {{llama.kv_heads, 512, 512}}}}};
  entries.exact(
      "TidalDecode, share read, 4 of 32 layers in full, 512 chosen of 32K", "0.138671875", "",
      static_cast<double>(tidal.tokens(0)) / static_cast<double>(evenly(llama, llama.kv_heads, n).tokens(0)));
  entries.exact(
      "Double Sparsity, share read, a sixteenth of channels in 4 bits and of tokens", "0.0703125", "",
      // Of a key and a value of 16 bits: a sixteenth of the key's channels in 4, both of a sixteenth.
      (4.0 / 16 + 2.0 * 16 / 16) / (2 * 16));
  entries.exact("ReKV, an hour of video: 1800 frames of 196 tokens, Qwen2-7B", "20230963200", "B",
                cache_bytes(qwen, 1800 * 196));
  entries.exact("Locret, tokens of a 128K prompt over its budget of 16K", "8", "x",
                static_cast<double>(evenly(llama, llama.kv_heads, 131072).tokens(0)) /
                    static_cast<double>(evenly(llama, llama.kv_heads, 16384, 16384).tokens(0)));
  entries.exact("KV cache of a 7B model at 128K", "64", "GiB", cache_bytes(llama, 131072) / kGiB);
  entries.exact("KV cache of a 13B model, 16 sequences of 2048", "25", "GiB",
                cache_bytes(find_model("llama-2-13b"), 2048, 16) / kGiB);
  entries.evidence(Evidence::verified).subject(Subject::time);
  entries.not_derivable("Quest, self-attention, up to", "7.03", "x", "a kernel's time");
  entries.not_derivable("Quest, end to end, up to", "2.23", "x", "a kernel's time");
  return entries.take();
}

}  // namespace

Source sparse_reads_source() {
  return {"Sparse reads",
          "Quest (arXiv 2406.10774), TidalDecode (arXiv 2410.05076), Double Sparsity (arXiv 2408.07092), "
          "ReKV (ICLR 2025), Locret (arXiv 2410.01805)",
          {"Shares of keys and values, 16 bits, 7B models with 32 layers of 32 KV heads; derived from the "
           "papers' settings where they print no number."},
          {},
          checks};
}

}  // namespace kvsim::cost
