// Parameters and cache of public models.
#include "sim/cost/memory.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace model_sizes_numbers {

struct Row {
  const char* model;
  const char* parameters;  ///< billions
  const char* weights;     ///< GB in 16 bits
  const char* token;       ///< KiB of cache
};
constexpr Row kRows[] = {
    {"llama-2-7b", "6.738", "13.48", "512"},    {"llama-2-13b", "13.016", "26.03", "800"},
    {"llama-2-70b", "68.977", "137.95", "320"}, {"llama-3-8b", "8.030", "16.06", "128"},
    {"llama-3-70b", "70.554", "141.11", "320"}, {"mistral-7b-v0.2", "7.242", "14.48", "128"},
    {"phi-3-mini-4k", "3.821", "7.64", "384"},  {"opt-6.7b", "6.658", "13.32", "512"},
    {"opt-13b", "12.853", "25.71", "800"},      {"opt-30b", "29.975", "59.95", "1344"},
    {"opt-175b", "174.60", "349.2", "4608"},    {"gpt-j-6b", "6.051", "12.10", "448"},
    {"yi-34b-200k", "34.389", "68.78", "240"},  {"qwen2-7b", "7.616", "15.23", "56"},
    {"tinyllama-1.1b", "1.100", "2.20", "22"},  {"smollm2-135m", "0.1345", "0.27", "22.5"},
    {"smollm2-360m", "0.3618", "0.72", "40"}};

std::vector<Check> checks(Inputs&) {
  Entries entries(Evidence::derived);
  for (const Row& row : kRows) {
    const Model model = find_model(row.model);
    entries.exact(std::string("parameters, ") + row.model, row.parameters, "billions",
                  static_cast<double>(model.parameters()) / 1e9);
    entries.exact(std::string("weights, ") + row.model, row.weights, "GB",
                  static_cast<double>(weight_bytes(model, Runtime{}, 1)) / kGB);
    entries.exact(std::string("KV cache of a token, ") + row.model, row.token, "KiB",
                  cache_bytes(model, 1) / kKiB);
  }
  return entries.take();
}

}  // namespace model_sizes_numbers

Source model_sizes_source() {
  return {"Sizes of public models",
          "parameter counts of the checkpoints at huggingface.co",
          {"16 bits; the published counts to the digits shown."},
          {},
          model_sizes_numbers::checks};
}

}  // namespace kvsim::cost
