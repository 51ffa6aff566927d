#include "tools/requests/cache_options.hpp"

#include <algorithm>

#include "analysis/asked/asked_cells.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {
namespace {

using analysis::CacheCapacity;

CacheCapacity capacity_of(const std::string& item, const std::string& option, std::uint32_t block_tokens,
                          std::optional<double> token_bytes) {
  const bool bytes = item.ends_with('B');
  if (bytes && !token_bytes)
    usage_error(in_quotes(item) + " is in bytes", option, "Say the --model whose keys and values they hold.");
  const std::uint64_t asked = bytes ? parse_bytes(item, option) : parse_tokens(item, option);
  const double tokens = bytes ? static_cast<double>(asked) / *token_bytes : static_cast<double>(asked);
  if (tokens >= 0x1p63) usage_error(in_quotes(item) + " is more than can be counted", option);
  CacheCapacity out;
  out.blocks = static_cast<std::uint64_t>(tokens) / block_tokens;
  if (out.blocks == 0)
    usage_error(in_quotes(item) + " holds no block of " + std::to_string(block_tokens) + " tokens", option);
  out.tokens = out.blocks * block_tokens;
  if (bytes)
    out.bytes = asked;
  else if (token_bytes && static_cast<double>(out.tokens) * *token_bytes < 0x1p63)
    out.bytes = static_cast<std::uint64_t>(static_cast<double>(out.tokens) * *token_bytes);
  return out;
}

}  // namespace

void add_cache_options(Command command, CacheOptions& options) {
  Option model = command.add_option(
      "--model", options.model, "MODEL",
      "Whose keys and values are cached: capacities can be bytes then (kvsim cost models)");
  command
      .add_option(
          "--machine", options.machine, "MACHINE",
          "On which prompts are computed: seconds and operations that hits save (kvsim cost machines)")
      .needs(model);
  Option stored =
      command
          .add_option(
              "--stored", options.stored, "POLICY",
              "How cached prompts are kept: a policy as of kvsim cost estimate, like 'full+kivi(bits=2)'\n"
              "or keydiff (default: every token as --kv says)")
          .needs(model);
  command
      .add_option("--budget", options.budget, "BUDGET",
                  "What that policy keeps of a prompt: 25%, or tokens per lane")
      .needs(stored);
  command
      .add_option("--kv", options.serving.kv, "fp16|bf16|fp32",
                  "Keys and values that are stored as they come")
      .needs(model);
  command
      .add_option("--tensor-parallel", options.serving.tensor_parallel, "N", "Devices that share every layer")
      .needs(model);
}

std::optional<serving::ServedModel> served_model(const CacheOptions& options) {
  if (options.model.empty()) return {};
  serving::ServedModel out;
  out.model = cost::find_model(options.model);
  if (!options.machine.empty()) out.machine = cost::find_machine(options.machine);
  out.serving = parse_serving(options.serving, out.model);
  return out;
}

std::optional<double> cached_token_bytes(const CacheOptions& options, const requests::RequestTrace& trace) {
  const std::optional<serving::ServedModel> served = served_model(options);
  if (!served) return {};
  if (options.stored.empty()) return static_cast<double>(serving::token_bytes(*served));
  std::optional<sim::Budget> budget;
  if (!options.budget.empty()) budget = sim::parse_budget(options.budget);
  return analysis::stored_token_bytes(*served,
                                      policy::parse_composition(options.stored, front_end().policies()),
                                      budget, analysis::mean_prompt(trace));
}

std::optional<analysis::PrefillCost> prefill_cost(const CacheOptions& options) {
  if (options.model.empty() || options.machine.empty()) return {};
  const serving::ServedModel served = *served_model(options);
  return analysis::PrefillCost(served.model, served.machine, served.serving);
}

std::vector<policy::Part> parse_replacements(const std::vector<std::string>& lists) {
  const policy::Registry& registry = front_end().policies();
  std::vector<policy::Part> out;
  const auto add = [&](const std::string& item) {
    out.push_back(policy::parse_replacement(item, registry));
    for (std::size_t i = 0; i + 1 < out.size(); ++i)
      if (out[i].text() == out.back().text()) usage_error("is named twice", "--policy " + item);
  };
  for (const std::string& item : analysis::listed_policies(lists)) {
    if (item != "all") {
      add(item);
      continue;
    }
    for (const policy::PolicySpec& spec : registry.policies())
      if (spec.kind() == policy::Kind::replacement) add(spec.name);
  }
  return out;
}

std::vector<CacheCapacity> parse_capacities(const std::string& text, const std::string& option,
                                            std::uint32_t block_tokens, std::optional<double> token_bytes) {
  constexpr std::size_t kMost = 1000;
  std::vector<std::string> items;
  for (const std::string& item : comma_list(text)) append_values(items, item, option + " " + in_quotes(item));
  if (items.size() > kMost)
    usage_error(std::to_string(items.size()) + " capacities are more than " + std::to_string(kMost), option);
  std::vector<CacheCapacity> out;
  for (const std::string& item : items) out.push_back(capacity_of(item, option, block_tokens, token_bytes));
  std::ranges::stable_sort(
      out, [](const CacheCapacity& a, const CacheCapacity& b) { return a.blocks < b.blocks; });
  const auto same = [](const CacheCapacity& a, const CacheCapacity& b) { return a.blocks == b.blocks; };
  out.erase(std::unique(out.begin(), out.end(), same), out.end());
  return out;
}

}  // namespace kvsim::tools
