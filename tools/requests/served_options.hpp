#pragma once
/// Which model serves on which machine: the same options in every command that serves requests.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/requests/serving/served_model.hpp"
#include "tools/options/command_tree.hpp"
#include "tools/options/cost_options.hpp"

namespace kvsim::tools {

struct ServedOptions {
  std::string model{}, machine{};
  ServingOptions serving{};
};

/// Adds --model, --machine and, among those of an engine, --tensor-parallel, --kv, --weight-bits and
/// --host-floor-ms.
void add_served_options(Command command, ServedOptions& options);

/// Throws Error(usage) with the nearest names.
serving::ServedModel parse_served(const ServedOptions& options);

/// Bits of a number that is stored as it comes; nothing: `kind` is no such.
std::optional<std::uint64_t> plain_bits(const std::string& kind);
/// Every token, in this kind: fp16, bf16, fp32 or a representation. Throws Error(usage) with the nearest
/// names.
policy::Composition whole_prompt(const std::string& kind, const std::string& option);

/// Bytes for keys and values on a device if they are not given: what 90 % of its memory (vLLM's default)
/// leaves beside weights, activations of `step_tokens` tokens and the runtime.
std::uint64_t usual_memory(const serving::ServedModel& served, std::uint64_t step_tokens);

/// A number of requests, engines or blocks: from 1 to 2^20. Throws Error(usage).
std::uint32_t small_count(std::uint64_t count, const std::string& option);

/// Bytes for keys and values on each device; empty: 90 % of its memory, vLLM's default, without weights,
/// what the runtime takes, and the activations of a step of `step_tokens` tokens. Throws Error(usage).
std::vector<std::uint64_t> parse_memories(const std::string& text, const serving::ServedModel& served,
                                          std::uint64_t step_tokens);
/// How many times as fast as the trace: "0.5,1,2". Throws Error(usage).
std::vector<double> parse_rates(const std::string& text);

}  // namespace kvsim::tools
