// What selections read of the cache at a step and keep of it on the device, by their own statements; Locret:
// sizes of the cache.
#include "policies/api/composition.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace sparse_reads_numbers {

double share_read(const Inputs& inputs, const std::string& selection, const Model& model,
                  std::uint64_t tokens) {
  return bytes_read(inputs, selection, model, tokens) / cache_bytes(model, tokens);
}

/// Shares of the cache that a step reads, of models whose query heads share no keys.
void shares(Entries& entries, const Inputs& inputs) {
  const Model llama = find_model("llama-2-7b");
  entries.exact("Quest, KV cache of a 7B model at 32K", "16", "GB", cache_bytes(llama, 32768) / kGiB,
                "GB is GiB");
  entries.exact("Quest, cache over what a step reads, pages of 16, 64K, 4K chosen", "8", "x",
                1 / share_read(inputs, "quest(read=4096,dense=0)", llama, 65536),
                "of a layer that chooses: the first two read everything");
  entries.evidence(Evidence::derived);
  entries.exact("TidalDecode, share read, 4 of 32 layers in full, 512 chosen of 32K", "0.138671875", "",
                share_read(inputs, "tidal(read=512)", llama, 32768));
  entries.exact("TidalDecode, the same, 256 chosen of 100K", "0.1272", "",
                share_read(inputs, "tidal(read=256)", llama, 102400));
  entries.exact("TidalDecode, the same, 4096 chosen of 10K", "0.475", "",
                share_read(inputs, "tidal(read=4096)", llama, 10240));
  const char* scales = "ours counts the scale and the least number of a label, 32 bits; theirs does not";
  const auto sparse = [&](const std::string& bits) {
    return 1 / share_read(inputs, "double_sparsity(dense=0,bits=" + bits + ")", llama, 65536);
  };
  entries.within(
      {aim::kBytes, true},
      "Double Sparsity, cache over what a step reads, a sixteenth of channels in 4 bits and of tokens",
      "14.2", "x", sparse("4"), scales);
  entries.exact("Double Sparsity, the same in 16 bits", "10.7", "x", sparse("16"), "labels without scales");
  entries.exact("SparQ, share read, 32 of 128 channels and 128 of 2048 tokens", "0.1875", "",
                share_read(inputs, "sparq(read=128)", llama, 2048), "without the mean value");
}

void retrieval_attention(Entries& entries, const Inputs& inputs) {
  constexpr std::uint64_t kTokens = 131072, kFound = 100;
  Model llama = find_model("llama-3.1-8b");
  const auto always = static_cast<std::uint64_t>(
                          selection_reads(inputs, "retrieval(read=100)", llama, 0, kTokens).head_tokens) -
                      kFound;
  entries.exact("RetrievalAttention, Llama-3.1-8B, 128K, on the device", "83886080", "B",
                cache_bytes(llama, always), "the first 128 tokens and the last 512");
  const auto scanned = [&] {
    return static_cast<double>(llama.layers) *
           selection_reads(inputs, "retrieval(index=ivf,lists=50,probes=1)", llama, 0, kTokens)
               .index_bytes_read /
           kGB;
  };
  const char* lists = "one of 50 lists of the keys that are not on the device, and the 50 centres";
  entries.exact("RetrievalAttention, the same, keys in host memory that a step looks at, 2 %", "0.69", "GB",
                scanned(), lists);
  llama.query_heads = llama.kv_heads;
  entries.exact("RetrievalAttention, the same, if query heads that share keys look at the same ones", "0.17",
                "GB", scanned(), lists);
}

void a2ats(Entries& entries, const Inputs& inputs) {
  const Model llama = find_model("llama-3.1-8b");
  const auto index = [&](std::uint64_t tokens) {
    return static_cast<double>(llama.layers) * selection_reads(inputs, "a2ats", llama, 0, tokens).index_bytes;
  };
  const double token = (index(131072) - index(65536)) / 65536;
  entries.exact("A2ATS, Llama-3.1-8B, codes of a token", "384", "B", token, "12 bits per KV head and layer");
  entries.within({aim::kBytes, true}, "A2ATS, Llama-3.1-8B, codebooks", "256", "MiB",
                 (index(65536) - 65536 * token) / kMiB,
                 "ours counts the matrix of each KV head that turns its queries, too: 8 MiB");
}

void rekv(Entries& entries, const Inputs& inputs) {
  const Model qwen = find_model("qwen2-7b");
  constexpr std::uint64_t kHour = 1800 * 196;
  entries.exact("ReKV, an hour of video: 1800 frames of 196 tokens, Qwen2-7B", "20230963200", "B",
                cache_bytes(qwen, kHour));
  // Everything in host memory: nothing is sink or local.
  const double chosen = selection_reads(inputs, "rekv", qwen, 0, kHour).lane_tokens;
  entries.exact("ReKV, 64 frames over the host link, none on the device", "719323136", "B",
                cache_bytes(qwen, static_cast<std::uint64_t>(chosen)), "every layer chooses 64 of its own");
}

std::vector<Check> checks(Inputs& inputs) {
  Entries entries(Evidence::verified);
  shares(entries, inputs);
  retrieval_attention(entries, inputs);
  a2ats(entries, inputs);
  rekv(entries, inputs);
  const Model llama = find_model("llama-2-7b");
  entries.exact("Locret, tokens of a 128K prompt over its budget of 16K", "8", "x",
                static_cast<double>(evenly(llama, llama.kv_heads, 131072).tokens(0)) /
                    static_cast<double>(evenly(llama, llama.kv_heads, 16384, 16384).tokens(0)));
  entries.exact("KV cache of a 7B model at 128K", "64", "GiB", cache_bytes(llama, 131072) / kGiB);
  entries.exact("KV cache of a 13B model, 16 sequences of 2048", "25", "GiB",
                cache_bytes(find_model("llama-2-13b"), 2048, 16) / kGiB);
  entries.evidence(Evidence::verified).subject(Subject::time);
  const char* kernel = "a kernel's time";
  entries.not_derivable("Quest, self-attention, up to", "7.03", "x", kernel);
  entries.not_derivable("Quest, end to end, up to", "2.23", "x", kernel);
  return entries.take();
}

}  // namespace sparse_reads_numbers

Source sparse_reads_source() {
  return {"Sparse reads",
          "Quest (arXiv 2406.10774), TidalDecode (arXiv 2410.05076), Double Sparsity (arXiv 2408.07092), "
          "SparQ (arXiv 2312.04985), RetrievalAttention (arXiv 2409.10516), A2ATS (arXiv 2502.12665), "
          "ReKV (ICLR 2025), Locret (arXiv 2410.01805)",
          {"What a step reads and what the device keeps is what the selections here state of themselves, in "
           "16 bits; "
           "derived from the papers' settings where they print no number.",
           "Shares are of a 7B model with 32 layers of 32 KV heads."},
          {},
          sparse_reads_numbers::checks};
}

}  // namespace kvsim::cost
