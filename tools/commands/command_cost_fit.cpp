// kvsim cost fit: the largest budget and batch within limits.

#include "analysis/cost/cost_table.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/cost_options.hpp"
#include "tools/printing/cost_document.hpp"

namespace kvsim::tools {
namespace {

struct CostFitOptions : CostOptions {
  LimitOptions limits;
};

void run_cost_fit(const CostFitOptions& options) {
  check_cost_output(options);
  analysis::CostStudy study = cost_study(options, asked_model(options));
  study.prompts = {required_tokens(options.prompt_tokens, "--prompt-tokens")};
  study.generates = {required_tokens(options.generate, "--generate")};
  check_cost_study(study, false);
  const analysis::CostLimits limits = parse_limits(options.limits, study.machine.memory);
  const std::vector<analysis::CostFit> fits = analysis::cost_fits(study, limits);
  analysis::Document document = cost_document(study);
  document.records = analysis::fit_records(fits);
  document.settings.emplace_back("memory_limit_bytes", limits.memory);
  document.settings.emplace_back("ttft_limit_seconds", analysis::value_of(limits.first_token));
  document.settings.emplace_back("tpot_limit_seconds", analysis::value_of(limits.per_token));
  document.notes = notes_of(study, {});
  document.console = [&](std::ostream& out) {
    analysis::write_fit_table(out, cost_head(study, {"limits   " + described(limits)}), fits, document.notes);
  };
  commit_costs(options, options.quiet, document);
}

}  // namespace

void add_cost_fit(Command cost) {
  Command command = cost.add_subcommand("fit", "The largest budget and batch within limits", R"(Examples:
  kvsim cost fit --model llama-3-8b --machine a100-80-sxm --prompt-tokens 32K --batch 8 --policy snapkv --policy kvcrush \
      --memory 70GiB --ttft 40s --tpot 50ms
  kvsim cost fit --model llama-3-8b --machine a100-80-sxm --prompt-tokens 32K --policy snapkv --budget 4K
)");
  const auto options = std::make_shared<CostFitOptions>();
  const Command limits = command.in_group("Limits");
  limits.add_option("--memory", options->limits.memory, "SIZE",
                    "Bytes on the device: 80GiB (default: the machine's)");
  limits.add_option("--ttft", options->limits.first_token, "TIME", "Time to the first token: 2s");
  limits.add_option("--tpot", options->limits.per_token, "TIME", "Time per generated token: 50ms");
  add_cost_options(command, *options);
  command.callback([options] { run_cost_fit(*options); });
}

}  // namespace kvsim::tools
