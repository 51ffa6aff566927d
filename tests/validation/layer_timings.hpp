#pragma once
/// Measured times of the four matrix products of one layer, and their roofline estimates.
#include <cstdint>
#include <span>
#include <string>

#include "tests/validation/entries.hpp"

namespace kvsim::cost {

struct LayerTiming {
  std::uint16_t tokens;  ///< tokens in the pass
  float milliseconds;    ///< sum of the medians of the products: queries, keys and values; outputs; gate and
                         ///< up; down
};

// Vidur (github.com/microsoft/vidur, MIT licence), data/profiling/compute, one device: every number of
// tokens.
std::span<const LayerTiming> a100_llama_2_7b();
std::span<const LayerTiming> a100_llama_3_8b();
std::span<const LayerTiming> h100_llama_2_7b();
std::span<const LayerTiming> a40_llama_2_7b();
// LLMServingSim (github.com/casys-kaist/LLMServingSim, MIT licence), profiler/perf, RTX 4090, bf16: the same.
std::span<const LayerTiming> rtx_4090_llama_3_1_8b();

/// Returns the milliseconds of the four products of a layer.
double products_ms(const Model& model, const Machine& machine, std::uint64_t tokens);
/// Returns the name of a machine's timings; its ceilings are fitted to every second one.
std::string products_of(const std::string& machine);

/// Adds one row for every 25th timing, so that fitted and held-out timings alternate, and one row for the
/// mean error of all held-out timings.
void timed_layers(Entries& entries, Inputs& inputs, const std::string& model, const std::string& machine,
                  std::span<const LayerTiming> timings);

}  // namespace kvsim::cost
