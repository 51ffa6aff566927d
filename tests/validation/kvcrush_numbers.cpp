// KVCrush: equation 1, Table III and the time of its grouping.
#include <cmath>

#include "policies/api/composition.hpp"
#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace kvcrush_numbers {

struct Document {
  const char* data_set;
  std::uint64_t tokens;
  const char* compression;
};
constexpr Document kLongBench[] = {{"narrativeqa", 18409, "9.0"},    {"qasper", 3619, "1.8"},
                                   {"multifieldqa_en", 4559, "2.2"}, {"hotpotqa", 9151, "4.5"},
                                   {"2wikimqa", 4887, "2.4"},        {"musique", 11214, "5.5"},
                                   {"gov_report", 8734, "4.3"},      {"qmsum", 10614, "5.2"},
                                   {"multi_news", 2113, "1.0"},      {"trec", 5177, "2.5"},
                                   {"triviaqa", 8209, "4.0"},        {"samsum", 6258, "3.1"},
                                   {"passage_count", 11141, "5.4"},  {"passage_retrieval_en", 9289, "4.5"},
                                   {"repobench-p", 4206, "2.1"}};
constexpr std::uint64_t kBudget = 2048;

double compression(const policy::Composition& kvcrush, const Model& model, std::uint64_t tokens) {
  const Holding held = rule_holding(kvcrush, model, model.kv_heads, tokens, 0, kBudget);
  const Holding full = evenly(model, model.kv_heads, tokens);
  return static_cast<double>(full.tokens(0)) / static_cast<double>(held.tokens(0));
}

double request_seconds(const policy::Composition& composition, const Model& model, const Machine& machine,
                       const Serving& serving, std::uint64_t budget) {
  const Holding held =
      rule_holding(composition, model, model.kv_heads, serving.prompt, serving.generate, budget);
  return latency(model, machine, serving, held, cost_of(composition, model, serving.prompt, budget)).request;
}

std::vector<Check> checks(Inputs& inputs) {
  const policy::Registry& policies = inputs.policies();
  const Model opt = find_model("opt-175b"), llama = find_model("llama-3-8b");
  const double cache = cache_bytes(opt, 8192, 128);
  const double weights = static_cast<double>(weight_bytes(opt, Runtime{}, 1));

  Entries entries(Evidence::verified);
  entries.exact("KV cache of OPT-175B, batch 128, 8K tokens", "4608", "GB", cache / kGiB,
                "GB is GiB, and D is the 128 of one head, not the 12288 of the embedding as the text says");
  entries.exact("weights of OPT-175B", "325", "GB", weights / kGiB, "GB is GiB");
  entries.contradicted("KV cache over weights of OPT-175B", "12", "x", cache / weights,
                       "the paper's own 4608 and 325 make 14.2");
  entries.exact("key of one head (128 in fp16) over one bit of each of 32 heads", "64", "x", 128.0 * 16 / 32,
                "of one key or one value of one head; all a token's keys and values are 1024 times as large");

  const policy::Composition kvcrush = policy::parse_composition("kvcrush", policies);
  double sum = 0;
  for (const Document& document : kLongBench) {
    const double ours = compression(kvcrush, llama, document.tokens);
    sum += ours;
    entries.exact(std::string("Table III, compression of ") + document.data_set + ", " +
                      std::to_string(document.tokens) + " tokens at a budget of 2048",
                  document.compression, "x", ours);
  }
  entries.exact("Table III, mean compression of the 15 sets: the 4x of the abstract", "4", "x",
                sum / static_cast<double>(std::size(kLongBench)), "mean of the printed rows is 3.8");
  entries.not_derivable("throughput gain (vendor's article)", "4", "x",
                        "restates the compression; no run with conditions is given");

  entries.subject(Subject::time);
  const Machine xeon = inputs.machine("xeon-8470");
  const Serving serving = serve(kBudget, 128, 1);
  const double h2o = request_seconds(policy::parse_composition("h2o", policies), llama, xeon, serving, 512);
  const double crush = request_seconds(kvcrush, llama, xeon, serving, 512);
  entries.at_most("Fig. 6, latency added to H2O by grouping, Llama-3-8B on a Xeon 8470", "0.5", "%",
                  100 * (crush / h2o - 1), "2048 tokens of prompt and 128 generated are assumed");
  entries.not_derivable("Fig. 6, latency added by k-means instead of grouping", "200", "%",
                        "how often the cache is clustered again is not given");
  return entries.take();
}

}  // namespace kvcrush_numbers

Source kvcrush_source() {
  return {"KVCrush",
          "Jha, Gobriel, Talamanova, Jain, KVCrush: Key Value Cache Size-Reduction Using Similarity in "
          "Head-Behaviour, arXiv 2503.00022",
          {"GB is GiB wherever the paper prints GB of memory.",
           "Lengths are LongBench's means, of words; 4206 is RepoBench-P's, LCC's is 1235."},
          {},
          kvcrush_numbers::checks};
}

}  // namespace kvsim::cost
