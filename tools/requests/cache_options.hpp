#pragma once
/// What a prefix cache holds and on what it stands, as typed: the options that commands about prefix caches
/// share.
#include <optional>
#include <string>
#include <vector>

#include "analysis/requests/cache_capacity.hpp"
#include "analysis/requests/prefill_cost.hpp"
#include "tools/options/command_tree.hpp"
#include "tools/options/cost_request.hpp"

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

}  // namespace kvsim::tools
