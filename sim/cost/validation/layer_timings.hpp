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

/// Milliseconds of the four products of a layer.
double products_ms(const Model& model, const Machine& machine, std::uint64_t tokens);
/// The name of all of a machine's timings, to every second of which its ceilings are fitted.
std::string products_of(const std::string& machine);

/// One row for every 25th timing, so that fitted and held-out ones take turns, and one for the mean error of
/// all that are held out.
void timed_layers(Entries& entries, Inputs& inputs, const std::string& model, const std::string& machine,
                  std::span<const LayerTiming> timings);

}  // namespace kvsim::cost
