#pragma once
/// What a prefix cache holds and on what it stands, as typed: the options that commands about prefix caches
/// share.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/requests/prefix_costs.hpp"
#include "tools/options/command_tree.hpp"
#include "tools/options/cost_options.hpp"

namespace kvsim::tools {

struct CacheOptions {
  std::string model{}, machine{}, stored{}, budget{};
  ServingOptions serving{};
};

/// Adds --model, --machine, --stored, --budget, --kv and --tensor-parallel.
void add_cache_options(Command command, CacheOptions& options);

/// What is served and on what; none: no --model. Without a machine all that needs none. Throws Error(usage).
std::optional<serving::ServedModel> served_model(const CacheOptions& options);
/// Bytes that a cached token takes on each device, of prompts of the trace's mean length; none: no --model.
std::optional<double> cached_token_bytes(const CacheOptions& options, const requests::RequestTrace& trace);
/// Prefills of the model on the machine; none: one of them is not named.
std::optional<analysis::PrefillCost> prefill_cost(const CacheOptions& options);

/// The replacements of comma lists; "all": every one of them. Throws Error(usage).
std::vector<policy::Part> parse_replacements(const std::vector<std::string>& lists);

/// `8K` tokens, `64GiB`, `1K..1M:x2`, `16GiB..1TiB:x4`, and commas between them; ascending, each once, in
/// whole blocks. `token_bytes`: what a token takes; none: bytes are refused. Throws Error(usage), also for
/// less than a block and more than 1,000 capacities.
std::vector<analysis::CacheCapacity> parse_capacities(const std::string& text, const std::string& option,
                                                      std::uint32_t block_tokens,
                                                      std::optional<double> token_bytes);

}  // namespace kvsim::tools
