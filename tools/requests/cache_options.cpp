#include "tools/requests/cache_options.hpp"

#include "analysis/asked/policy_choice.hpp"
#include "sim/base/error.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {

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

}  // namespace kvsim::tools
