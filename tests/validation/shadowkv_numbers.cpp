// ShadowKV: tokens per second when only the cache is read.
#include "policies/api/composition.hpp"
#include "sim/cost/offload.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace shadowkv_numbers {

/// Bytes/s: not printed, found from the column.
constexpr double kMemory = 2048 * kGiB;
constexpr const char* kColumn = "ShadowKV, infinite batch";

struct Shape {
  const char* name;
  std::uint64_t layers, query_heads, kv_heads;
  const char* published[3];  ///< at 60K, 122K, 244K
};
constexpr Shape kShapes[] = {{"Llama-3.1-8B", 32, 32, 8, {"273.07", "134.30", "67.15"}},
                             {"GLM-4-9B", 40, 32, 4, {"436.91", "214.87", "107.44"}},
                             {"Yi-9B", 48, 32, 4, {"364.09", "179.06", "89.53"}}};
constexpr std::uint64_t kThousands[] = {60, 122, 244};

/// By what its selection and its representation state of themselves.
void traffic(Entries& entries, const Inputs& inputs) {
  const Model llama = cache_shape("Llama-3.1-8B", 32, 32, 8, 128);
  const auto layers = static_cast<double>(llama.layers);
  const std::uint64_t n = 131072;
  // Chunks with a landmark are in host memory; of the others a step reads every token.
  const policy::ReadCount count = selection_reads(inputs, "shadowkv", llama, 0, n);
  const double away = count.index_bytes / static_cast<double>(llama.kv_heads * llama.head_dim * 2) * 8;
  const double chosen = count.lane_tokens - (static_cast<double>(n) - away);
  const double values = cache_bytes(llama, static_cast<std::uint64_t>(chosen)) / 2;
  entries.exact("over PCIe per step and sequence, 2048 tokens chosen, none cached", "134217728", "B", values,
                "values alone: keys are rebuilt on the device");
  entries.exact("over PCIe per step and sequence, 60 % cached", "53.7", "MB", 0.4 * values / kMB);
  entries.exact("share of 128K tokens that is chosen", "1.5625", "%", 100 * chosen / static_cast<double>(n));
  entries.exact(
      "share of 128K tokens that is in outlier chunks", "0.293", "%",
      100 * (count.lane_tokens - selection_reads(inputs, "shadowkv(outliers=0)", llama, 0, n).lane_tokens) /
          static_cast<double>(n));

  const auto factors = [&](std::uint64_t tokens) {
    const policy::StorageShape layer{static_cast<std::uint32_t>(llama.kv_heads), 128, 128, 16};
    return policy::parse_composition("full+shadowkv_keys", inputs.policies())
        .representation->ledger(layer, tokens, 0);
  };
  const auto index = [&](const std::string& selection, std::uint64_t tokens) {
    return layers * selection_reads(inputs, selection, llama, 0, tokens).index_bytes;
  };
  const std::uint64_t length = 122 * 1024;
  const double keys = layers * static_cast<double>(factors(length).codes) / 8;
  entries.exact("full cache over what the device holds of every token, 122K", "7.1", "x",
                cache_bytes(llama, length) / (keys + index("shadowkv(outliers=0,local=0)", length)),
                "factors of rank 160 and landmarks");
  entries.exact(
      "full cache over all that the device holds, 122K", "6.2", "x",
      cache_bytes(llama, length) /
          (keys + layers * static_cast<double>(factors(length).tables) / 8 + index("shadowkv", length) +
           bytes_read(inputs, "shadowkv", llama, length) - index("shadowkv", length)),
      "with outliers, the last chunks and room for 2048 chosen tokens; its authors say more than 6");
}

std::vector<Check> checks(Inputs& inputs) {
  const Link memory{inputs.fitted(kColumn, kMemory), 0};
  std::size_t row = 0;
  Entries entries(Evidence::verified);
  entries.subject(Subject::time);
  for (const Shape& shape : kShapes) {
    const Model model = cache_shape(shape.name, shape.layers, shape.query_heads, shape.kv_heads, 128);
    for (std::size_t i = 0; i < 3; ++i) {
      const auto bytes = static_cast<std::uint64_t>(cache_bytes(model, 1024 * kThousands[i]));
      entries.of(kColumn, held_out(row++));
      entries.exact("infinite batch, " + model.name + ", " + std::to_string(kThousands[i]) + "K",
                    shape.published[i], "tokens/s", 1 / transfer_time(memory, bytes, 0));
    }
  }
  entries.not_derivable("Llama-3.1-8B, 122K, ShadowKV, batch 24", "245.90", "tokens/s",
                        "its kernels' rates and hits of its chunk cache are not given");
  entries.not_derivable("Llama-3.1-8B, 122K, full cache, batch 4", "80.78", "tokens/s",
                        "runtime and machine are not described in full");
  entries.evidence(Evidence::derived).subject(Subject::bytes);
  traffic(entries, inputs);
  return entries.take();
}

}  // namespace shadowkv_numbers

Source shadowkv_source() {
  return {
      "ShadowKV",
      "Sun, Chang, Bao, Zheng, Zheng, Liu, Dong, Chi, Chen, ShadowKV: KV Cache in Shadows for "
      "High-Throughput Long-Context LLM Inference, ICML 2025, arXiv 2410.21465; table of the project page",
      {"The column \"infinite batch\" reads the cache of every sequence at 2 TiB/s, a rate found from it, "
       "and weights not at all; K is 1024 tokens."},
      {},
      shadowkv_numbers::checks};
}

}  // namespace kvsim::cost
