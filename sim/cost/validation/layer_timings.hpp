#pragma once
/// Measured times of the four matrix products of one layer, and what the roofline says to them.
#include <cstdint>
#include <span>
#include <string>

#include "sim/cost/validation/entries.hpp"

namespace kvsim::cost {

struct LayerTiming {
  std::uint16_t tokens;  ///< in the pass
  float milliseconds;    ///< medians of the projections to queries, keys and values, to outputs, of gate and
                         ///< up, and down, added
};

// Vidur (github.com/microsoft/vidur, MIT licence), data/profiling/compute, one device: every number of
// tokens.
std::span<const LayerTiming> a100_llama_2_7b();
std::span<const LayerTiming> a100_llama_3_8b();
std::span<const LayerTiming> h100_llama_2_7b();
std::span<const LayerTiming> a40_llama_2_7b();
// LLMServingSim (github.com/casys-kaist/LLMServingSim, MIT licence), profiler/perf, RTX 4090, bf16: the same.
std::span<const LayerTiming> rtx_4090_llama_3_1_8b();

/// One row for every 24th timing, and one for the mean over all of them, which must not be above `error`
/// percent: what calibration reached on single products.
void timed_layers(Entries& entries, const std::string& model, const std::string& machine,
                  std::span<const LayerTiming> timings, const char* error);

}  // namespace kvsim::cost
