#pragma once
/// Lists that commands about engines take.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/requests/serving/served_model.hpp"

namespace kvsim::tools {

/// Bytes for keys and values on each device; empty: 90 % of its memory, vLLM's default, without weights,
/// what the runtime takes, and the activations of a step of `step_tokens` tokens. Throws Error(usage).
std::vector<std::uint64_t> parse_memories(const std::string& text, const serving::ServedModel& served,
                                          std::uint64_t step_tokens);
/// How many times as fast as the trace: "0.5,1,2". Throws Error(usage).
std::vector<double> parse_rates(const std::string& text);

}  // namespace kvsim::tools
