// kvsim cost break-even: from which depth on loading a prefix is faster than computing it again.
#include <algorithm>

#include "analysis/requests/break_even.hpp"
#include "analysis/requests/prefix_costs.hpp"
#include "analysis/requests/tier_tables.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/printing/cost_document.hpp"
#include "tools/requests/tier_options.hpp"

namespace kvsim::tools {
namespace {

struct CostBreakEvenOptions : OutputOptions {
  std::string models{}, machines{}, depths = "1K..128K:x2", block = "512", suffix = "512";
  TierOptions tiers{};
};

std::vector<std::uint64_t> depths_of(const std::string& list) {
  std::vector<std::string> items;
  for (const std::string& item : comma_list(list)) append_values(items, item, "--depth");
  std::vector<std::uint64_t> out;
  for (const std::string& item : items) out.push_back(parse_tokens(item, "--depth"));
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void run_cost_break_even(const CostBreakEvenOptions& options) {
  check_cost_output(options);
  analysis::BreakEvenGrid grid;
  grid.depths = depths_of(options.depths);
  grid.block = parse_tokens(options.block, "--block");
  grid.suffix = parse_tokens(options.suffix, "--suffix");
  constexpr std::uint64_t kMostBlocks = 1 << 20;
  if (grid.depths.back() / grid.block > kMostBlocks || grid.depths.back() > (1U << 30))
    usage_error("a prefix of more than 2^30 tokens or 2^20 blocks", "--depth");
  for (const std::string& model : comma_list(options.models))
    for (const std::string& machine : comma_list(options.machines)) {
      const serving::ServedModel served = tier_served(options.tiers, model, machine);
      TierStorage storage = tier_storage(options.tiers, served, static_cast<std::uint32_t>(grid.block));
      const analysis::PrefillCost cost(served.model, served.machine, served.serving);
      grid.cases.push_back({.model = served.model.name,
                            .machine = served.machine.name,
                            .host_kv = std::move(storage.host_kv),
                            .ssd_kv = std::move(storage.ssd_kv),
                            .links = storage.links,
                            .prefill = [cost](std::uint64_t prompt, std::uint64_t cached) {
                              return cost.of(prompt, cached).seconds;
                            }});
    }
  const std::vector<analysis::BreakEvenRow> rows = break_even_rows(grid);
  analysis::Document document{
      .analysis = "cost break-even", .traces = {}, .records = break_even_records(grid, rows)};
  document.settings = {{"block", grid.block}, {"suffix", grid.suffix}};
  document.console = [&](std::ostream& out) { write_break_even_table(out, grid, rows); };
  commit_costs(options, false, document);
}

}  // namespace

void add_cost_break_even(Command cost) {
  Command command = cost.add_subcommand(
      "break-even", "From which depth on loading a prefix from host memory or an SSD beats computing it",
      R"(Examples:
  kvsim cost break-even --model llama-3.1-8b --machine a100-80-sxm,h100-sxm --depth 1K..128K:x2
  kvsim cost break-even --model llama-3.1-70b --machine h100-sxm --tensor-parallel 4 --host-kv fp16 --ssd-kv fp8 --ssd-link 7GB/s,100us
)");
  const auto options = std::make_shared<CostBreakEvenOptions>();
  command.add_required("--model", options->models, "LIST", "Comma list, as of kvsim cost estimate");
  command.add_required("--machine", options->machines, "LIST", "Comma list, as of kvsim cost estimate");
  command.add_option("--depth", options->depths, "TOKENS", "Comma list of the prefix's lengths, or ranges");
  command.add_option("--block", options->block, "TOKENS", "Tokens that are stored together");
  command.add_option("--suffix", options->suffix, "TOKENS",
                     "Tokens behind the prefix, which are computed in any case");
  add_tier_options(command, options->tiers);
  add_output_options(command, *options);
  command.callback([options] { run_cost_break_even(*options); });
}

}  // namespace kvsim::tools
