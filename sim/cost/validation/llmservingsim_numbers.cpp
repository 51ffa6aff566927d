// What LLMServingSim ships: capacities of vLLM, times of an RTX 4090, a served workload.
#include <cmath>

#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/pages.hpp"
#include "sim/cost/validation/layer_timings.hpp"

namespace kvsim::cost {
namespace {

constexpr std::uint64_t kBlock = 16;

/// Whole blocks beside `taken` bytes, in the 90 % that vLLM uses.
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
  entries.within(0.03, "RTX 4090, blocks that vLLM had", "2588", "blocks",
                 blocks(model, 24, weights + static_cast<double>(machine.reserved + peak.activations)),
                 "beside the runtime's share of the machine file and the activations of 2048 tokens; that "
                 "share was found from this number");
  entries.exact("RTX PRO 6000, 96 GiB, tokens beside the weights", "585248", "tokens",
                tokens * blocks(model, 96, weights));
  entries.exact("RTX PRO 6000, memory beside the weights", "71.44", "GiB",
                (0.9 * 96 * kGiB - weights) / kGiB);
}

struct Attention {
  std::uint64_t sequences, tokens;
  const char* microseconds;
};
constexpr Attention kDecode[] = {{16, 2048, "171.8"},  {16, 8192, "595.7"},   {64, 1024, "333.3"},
                                 {64, 4096, "1185.0"}, {64, 16384, "4553.3"}, {256, 1024, "1182.9"},
                                 {256, 8192, "9055.9"}};
constexpr Attention kSmallDecode[] = {
    {1, 1024, "14.2"}, {1, 8192, "37.8"}, {16, 512, "61.6"}, {16, 1024, "99.3"}};

struct Chunk {
  std::uint64_t tokens, past;
  const char* microseconds;
};
constexpr Chunk kPrefill[] = {{512, 0, "41.1"},      {2048, 0, "336.1"},     {16, 4096, "136.6"},
                              {128, 4096, "137.9"},  {512, 4096, "289.5"},   {2048, 4096, "1304.0"},
                              {128, 16384, "521.5"}, {512, 16384, "1035.8"}, {2048, 16384, "4225.0"}};

struct Step {
  std::uint64_t sequences, tokens;
  const char* milliseconds;
};
constexpr Step kSteps[] = {
    {1, 1024, "16.71"}, {1, 8192, "17.46"}, {16, 2048, "22.30"}, {32, 1024, "23.81"}, {64, 512, "24.64"}};

void times(Entries& entries, const Model& model, const Machine& machine) {
  entries.subject(Subject::time);
  timed_layers(entries, "llama-3.1-8b", "rtx-4090", rtx_4090_llama_3_1_8b(), "3.6");

  const auto decode = [&](std::uint64_t sequences, std::uint64_t tokens) {
    return pass_time(model, machine, serve(1, 1, sequences), 1, tokens - 1, true);
  };
  const auto attention_us = [&](const Attention& row) {
    return 1e6 * decode(row.sequences, row.tokens)[OpClass::attention].seconds /
           static_cast<double>(model.layers);
  };
  const auto name = [](const Attention& row) {
    return "decode attention of a layer, " + std::to_string(row.sequences) + " x " +
           std::to_string(row.tokens) + " tokens";
  };
  for (const Attention& row : kDecode)
    entries.within(0.06, name(row), row.microseconds, "us", attention_us(row));
  for (const Attention& row : kSmallDecode)
    entries.within(
        0.4, name(row), row.microseconds, "us", attention_us(row),
        "keys and values fit the last cache level or nearly: kernels read them faster than memory");
  for (const Chunk& row : kPrefill) {
    const PassTime pass = pass_time(model, machine, serve(row.tokens, 1, 1), row.tokens, row.past, false);
    entries.within(0.15,
                   "prefill attention of a layer, " + std::to_string(row.tokens) + " tokens after " +
                       std::to_string(row.past),
                   row.microseconds, "us",
                   1e6 * pass[OpClass::attention].seconds / static_cast<double>(model.layers));
  }
  constexpr struct {
    std::uint64_t sequences;
    const char* microseconds;
  } kHeads[] = {{1, "1096.93"}, {64, "1211.84"}, {256, "1671.15"}};
  for (const auto& row : kHeads)
    entries.within(0.25, "output head, " + std::to_string(row.sequences) + " sequences", row.microseconds,
                   "us", 1e6 * decode(row.sequences, 2)[OpClass::head].seconds);
  for (const Step& step : kSteps)
    entries.within(0.12,
                   "decode step, operations added, " + std::to_string(step.sequences) + " x " +
                       std::to_string(step.tokens) + " tokens",
                   step.milliseconds, "ms", 1e3 * decode(step.sequences, step.tokens).seconds());
}

void served(Entries& entries) {
  constexpr struct {
    const char* quantity;
    const char* published;
    const char* unit;
  } kServed[] = {
      {"RTX 4090, mean TTFT", "65.46", "s"},      {"RTX 4090, 99th percentile of TTFT", "137.4", "s"},
      {"RTX 4090, mean TPOT", "32.4", "ms"},      {"RTX 4090, mean latency", "86.58", "s"},
      {"RTX PRO 6000, mean TTFT", "7.10", "s"},   {"RTX PRO 6000, mean TPOT", "32.5", "ms"},
      {"RTX PRO 6000, mean latency", "28.2", "s"}};
  for (const auto& row : kServed)
    entries.not_derivable(std::string("300 ShareGPT requests, 10 per second, ") + row.quantity, row.published,
                          row.unit, "needs arrivals, queues and preemption: a serving simulator");
}

std::vector<Check> checks(const policy::Registry&) {
  const Model model = find_model("llama-3.1-8b");
  const Machine machine = find_machine("rtx-4090");
  Entries entries(Evidence::verified);
  capacities(entries, model, machine);
  times(entries, model, machine);
  served(entries);
  return entries.take();
}

}  // namespace

Source llmservingsim_source() {
  return {"LLMServingSim, an RTX 4090 under vLLM",
          "Cho, Kim, Choi, Heo, Park, LLMServingSim, IISWC 2024; runs and profiles shipped with "
          "github.com/casys-kaist/LLMServingSim (MIT), vLLM 0.19, Llama-3.1-8B in bf16",
          {"vLLM uses 90 % of the memory, in blocks of 16 tokens.",
           "Ceilings are the catalogue's, fitted to this device. Its attention kernel is FlashAttention's, "
           "paged."},
          0.056,
          checks};
}

}  // namespace kvsim::cost
