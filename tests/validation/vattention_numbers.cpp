// vAttention: pages of virtual memory.
#include <string>

#include "sim/cost/memory.hpp"
#include "sim/cost/storage.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace vattention_numbers {

constexpr struct {
  std::uint64_t bytes;
  const char* name;
} kPages[] = {{64 << 10, "64 KiB"}, {128 << 10, "128 KiB"}, {256 << 10, "256 KiB"}, {2 << 20, "2 MiB"}};

struct Row {
  const char* model;
  std::uint64_t layers, query_heads, kv_heads;
  const char* one[4];       ///< tokens, by page size, one device
  const char* two[4];       ///< two devices
  const char* token;        ///< KiB of a token
  const char* small_block;  ///< MiB of a block of 64 KiB pages
  const char* large_block;  ///< of 2 MiB pages
};
constexpr Row kRows[] = {
    {"Yi-6B", 32, 32, 4, {"64", "128", "256", "2048"}, {"128", "256", "512", "4096"}, "64", "4", "128"},
    {"Llama-3-8B", 32, 32, 8, {"32", "64", "128", "1024"}, {"64", "128", "256", "2048"}, "128", "4", "128"},
    {"Yi-34B", 60, 56, 8, {"32", "64", "128", "1024"}, {"64", "128", "256", "2048"}, "240", "7.5", "240"}};

std::vector<Check> checks(Inputs&) {
  Entries entries(Evidence::derived);
  for (const Row& row : kRows) {
    const Model model = cache_shape(row.model, row.layers, row.query_heads, row.kv_heads, 128);
    const auto tokens = [&](std::size_t page, std::uint64_t degree) {
      return tokens_per_page(kPages[page].bytes, local_kv_heads(row.kv_heads, degree), 128, 2);
    };
    for (std::size_t page = 0; page < 4; ++page) {
      const std::string name = std::string("tokens per page, ") + row.model + ", " + kPages[page].name;
      entries.exact(name, row.one[page], "tokens", static_cast<double>(tokens(page, 1)));
      entries.exact(name + ", 2 devices", row.two[page], "tokens", static_cast<double>(tokens(page, 2)));
    }
    entries.exact(std::string("KV cache of a token, ") + row.model, row.token, "KiB",
                  cache_bytes(model, 1) / kKiB);
    entries.exact(std::string("pages of all layers together, ") + row.model + ", 64 KiB", row.small_block,
                  "MiB", cache_bytes(model, tokens(0, 1)) / kMiB);
    entries.exact(std::string("pages of all layers together, ") + row.model + ", 2 MiB", row.large_block,
                  "MiB", cache_bytes(model, tokens(3, 1)) / kMiB);
  }
  const Model yi = cache_shape("Yi-34B, one of two devices", 60, 28, 4, 128);
  entries.exact("virtual memory of one of two devices, Yi-34B, 500 sequences of 200K", "12288000000000", "B",
                cache_bytes(yi, 200000, 500));
  const Model llama = cache_shape("Llama-3-8B", 32, 32, 8, 128);
  entries.exact("mean waste of a request, Llama-3-8B, 2 MiB", "64", "MiB",
                cache_bytes(llama, 1024 / 2) / kMiB);
  entries.exact("mean waste of a request, Llama-3-8B, blocks of 16 tokens", "1", "MiB",
                cache_bytes(llama, 16 / 2) / kMiB);
  entries.evidence(Evidence::verified).subject(Subject::time);
  for (const auto& [what, published] : {std::pair{"generation over vLLM, up to", "1.97"},
                                        std::pair{"prefill over paged FlashAttention, up to", "3.92"},
                                        std::pair{"prefill over paged FlashInfer, up to", "1.45"}})
    entries.not_derivable(what, published, "x", "compares kernels");
  return entries.take();
}

}  // namespace vattention_numbers

Source vattention_source() {
  return {"vAttention",
          "Prabhu, Nayak, Mohan, Ramjee, Panwar, vAttention: Dynamic Memory Management for Serving LLMs "
          "without PagedAttention, ASPLOS 2025, arXiv 2405.04437; github.com/microsoft/vattention",
          {"One tensor of keys and one of values per layer; heads are shared by the devices."},
          {},
          vattention_numbers::checks};
}

}  // namespace kvsim::cost
