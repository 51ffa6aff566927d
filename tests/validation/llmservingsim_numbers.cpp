// Data in LLMServingSim's repository: capacities of vLLM, times of an RTX 4090, a served workload.
#include <cmath>
#include <tuple>

#include "policies/api/composition.hpp"
#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/storage.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"
#include "sim/requests/serving/served_model.hpp"
#include "sim/requests/serving/serving_run.hpp"
#include "tests/validation/attention_timings.hpp"
#include "tests/validation/layer_timings.hpp"
#include "tests/validation/served_requests.hpp"

namespace kvsim::cost {
namespace llmservingsim_numbers {

constexpr std::uint64_t kBlock = 16;

/// Returns the whole blocks beside `taken` bytes, in the 90 % of memory that vLLM uses.
double blocks(const Model& model, double memory_gib, double taken) {
  return std::floor((0.9 * memory_gib * kGiB - taken) / cache_bytes(model, kBlock));
}

void capacities(Entries& entries, const Model& model, const Machine& machine) {
  const double weights = static_cast<double>(weight_bytes(model, Runtime{}, 1));
  const double tokens = static_cast<double>(kBlock);
  entries.exact("RTX 4090, blocks of 16 tokens beside the weights", "3400", "blocks",
                blocks(model, 24, weights));
  entries.exact("RTX 4090, tokens beside the weights", "54400", "tokens",
                tokens * blocks(model, 24, weights));
  Serving serving = serve(8192, 1, 1);
  serving.chunk = 2048;
  const Memory peak = prefill_peak(model, machine, serving, evenly(model, model.kv_heads, 8192), {});
  entries.of("vLLM's blocks on an RTX 4090");
  entries.within(aim::kBytes, "RTX 4090, blocks that vLLM had", "2588", "blocks",
                 blocks(model, 24, weights + static_cast<double>(machine.reserved + peak.activations)),
                 "beside the runtime's share of the machine file and the activations of 2048 tokens; that "
                 "share was found from this number");
  entries.of("");
  entries.exact("RTX PRO 6000, 96 GiB, tokens beside the weights", "585248", "tokens",
                tokens * blocks(model, 96, weights));
  entries.exact("RTX PRO 6000, memory beside the weights", "71.44", "GiB",
                (0.9 * 96 * kGiB - weights) / kGiB);
}

struct Point {
  std::uint64_t sequences, tokens;
  const char* published;
  bool missed = false;
};
/// Microseconds where keys and values fit the last cache level.
constexpr Point kSmallDecode[] = {
    {1, 1024, "14.2"}, {1, 8192, "37.8", true}, {16, 512, "61.6"}, {16, 1024, "99.3"}};
/// Microseconds; each sequence's last token.
constexpr Point kHeads[] = {{1, 2, "1096.93"}, {64, 2, "1211.84"}, {256, 2, "1671.15", true}};
/// Milliseconds.
constexpr Point kSteps[] = {
    {1, 1024, "16.71"}, {1, 8192, "17.46"}, {16, 2048, "22.30"}, {32, 1024, "23.81"}, {64, 512, "24.64"}};

PassTime decode(const Model& model, const Machine& machine, std::uint64_t sequences, std::uint64_t tokens) {
  return pass_time(model, machine, serve(1, 1, sequences), 1, tokens - 1, true);
}

double attention_us(const Model& model, const PassTime& pass) {
  return 1e6 * pass[OpClass::attention].seconds / static_cast<double>(model.layers);
}

std::string sequences_of(std::uint64_t sequences, std::uint64_t tokens) {
  return std::to_string(sequences) + " x " + std::to_string(tokens) + " tokens";
}

/// Adds every `every`-th timing, the first of which may miss its aim, and the mean error of all held-out
/// timings.
template <class Ours, class Label>
void timed_attention(Entries& entries, const std::string& kind, std::size_t every, bool first_missed,
                     std::span<const AttentionTiming> timings, const Ours& ours_of, const Label& label) {
  const std::string measurements = kind + " attention on rtx-4090";
  HeldOutMean mean;
  for (std::size_t i = 0; i < timings.size(); ++i) {
    const double ours = ours_of(timings[i]);
    if (held_out(i)) mean.add(ours / static_cast<double>(timings[i].microseconds) - 1);
    if (i % every == 0)
      entries.of(measurements, held_out(i))
          .within({aim::kProduct, first_missed && i == 0},
                  kind + " attention of a layer, " + label(timings[i]), shortest(timings[i].microseconds),
                  "us", ours);
  }
  entries.of(measurements, true).mean(aim::kStep, kind + " attention of a layer, ", mean);
}

void attention(Entries& entries, const Model& model, const Machine& machine) {
  timed_attention(
      entries, "decode", 5, false, rtx_4090_decode_attention(),
      [&](const AttentionTiming& row) {
        return attention_us(model, decode(model, machine, row.count, row.tokens));
      },
      [](const AttentionTiming& row) { return sequences_of(row.count, row.tokens); });
  timed_attention(
      entries, "prefill", 7, true, rtx_4090_prefill_attention(),
      [&](const AttentionTiming& row) {
        return attention_us(model,
                            pass_time(model, machine, serve(row.count, 1, 1), row.count, row.tokens, false));
      },
      [](const AttentionTiming& row) {
        return std::to_string(row.count) + " tokens after " + std::to_string(row.tokens);
      });
  entries.of("");
  for (const Point& row : kSmallDecode) {
    const double ours = attention_us(model, decode(model, machine, row.sequences, row.tokens));
    const std::string name =
        "decode attention of a layer within the cache, " + sequences_of(row.sequences, row.tokens);
    const char* cache =
        "keys and values fit the last cache level or nearly: kernels read them faster than memory";
    entries.within({aim::kProduct, row.missed}, name, row.published, "us", ours, cache);
  }
}

void times(Entries& entries, Inputs& inputs, const Model& model, const Machine& machine) {
  entries.subject(Subject::time);
  timed_layers(entries, inputs, "llama-3.1-8b", "rtx-4090", rtx_4090_llama_3_1_8b());
  attention(entries, model, machine);
  for (const Point& row : kHeads)
    entries.within({aim::kProduct, row.missed},
                   "output head, " + std::to_string(row.sequences) + " sequences", row.published, "us",
                   1e6 * decode(model, machine, row.sequences, row.tokens)[OpClass::head].seconds);
  entries.of("element-wise operations on rtx-4090");
  for (const Point& row : kSteps)
    entries.within(aim::kStep, "decode step, operations added, " + sequences_of(row.sequences, row.tokens),
                   row.published, "ms", 1e3 * decode(model, machine, row.sequences, row.tokens).seconds(),
                   "a sum of timings of which some were fitted to");
}

/// The 300 requests of its workload, as vLLM served them on the RTX 4090. The number of blocks is the one
/// that vLLM reports, so that the queue is compared and not the memory once more.
void served(Entries& entries, Inputs& inputs, const Model& model, const Machine& machine) {
  const requests::RequestTrace trace = sharegpt_trace();
  const prefix::PrefixTree tree(trace);
  const serving::ServedModel served{model, machine, {}};
  serving::EngineSettings engine;
  engine.prefix_cache = policy::parse_replacement("lru", inputs.policies());
  engine = serving::engine_settings(served, engine, 2588 * kBlock * serving::token_bytes(served), 2 << 20);
  const serving::ServingResult run =
      serving::serve(trace, &tree, {.engine = engine}, serving::step_price(served));
  const serving::ServingSummary ours = serving::summary_of(run, {}, engine.memory.capacity);
  const struct {
    const char* quantity;
    const char* published;
    const char* unit;
    double ours;
  } kWithoutAim[] = {{"mean TTFT", "65.46", "s", ours.ttft.mean},
                     {"99th percentile of TTFT", "137.4", "s", ours.ttft.p99},
                     {"99th percentile of TPOT", "56.0", "ms", 1e3 * ours.tpot.p99},
                     {"mean latency", "86.58", "s", ours.latency.mean}};
  const std::string requests = "300 ShareGPT requests, 10 per second, RTX 4090, ";
  const std::string how = "a run of kvsim requests serve with the 2,588 blocks that vLLM had";
  entries.of("");
  entries.within(aim::kServed, requests + "mean TPOT", "32.4", "ms", 1e3 * ours.tpot.mean, how);
  entries.evidence(Evidence::recalled);
  for (const auto& row : kWithoutAim)
    entries.within(aim::kServed, requests + row.quantity, row.published, row.unit, row.ours,
                   how + "; no aim was stated before its error was known, so it is shown and not asserted");
  entries.evidence(Evidence::verified);
  for (const auto& [quantity, published, unit] :
       {std::tuple{"mean TTFT", "7.10", "s"}, {"mean TPOT", "32.5", "ms"}, {"mean latency", "28.2", "s"}})
    entries.not_derivable(std::string("300 ShareGPT requests, 10 per second, RTX PRO 6000, ") + quantity,
                          published, unit, "no machine of the catalogue: its products were not timed");
}

std::vector<Check> checks(Inputs& inputs) {
  const Model model = find_model("llama-3.1-8b");
  const Machine machine = inputs.machine("rtx-4090");
  Entries entries(Evidence::verified);
  capacities(entries, model, machine);
  times(entries, inputs, model, machine);
  served(entries, inputs, model, machine);
  return entries.take();
}

}  // namespace llmservingsim_numbers

Source llmservingsim_source() {
  return {
      "LLMServingSim, an RTX 4090 under vLLM",
      "Cho, Kim, Choi, Heo, Park, LLMServingSim, IISWC 2024; runs and profiles shipped with "
      "github.com/casys-kaist/LLMServingSim (MIT), vLLM 0.19, Llama-3.1-8B in bf16",
      {"vLLM uses 90 % of the memory, in blocks of 16 tokens.",
       "Ceilings are the catalogue's: of products and attention fitted to the first, third, fifth and so on "
       "of "
       "this device's timings, the others being held out; of element-wise operations to all. Its attention "
       "kernel is FlashAttention's, paged.",
       "Rows are every 25th timing of products, every fifth of decode and every seventh of prefill "
       "attention; mean errors are over all that are held out."},
      aim::kStep,
      llmservingsim_numbers::checks};
}

}  // namespace kvsim::cost
