#pragma once
/// The options that kvsim cost estimate and kvsim cost fit share: what is served, how, and on what.
#include <string>
#include <vector>

#include "analysis/cost/cost_study.hpp"
#include "tools/options/command_tree.hpp"
#include "tools/options/cost_request.hpp"
#include "tools/options/output_options.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::tools {

struct CostOptions : OutputOptions {
  std::string model{}, machine{}, prompt_tokens{}, generate = "256", batch = "1";
  std::vector<std::string> policies{}, budgets{};
  ServingOptions serving{};
  unsigned threads = 0;
  bool quiet = false;
};

void add_cost_options(Command command, CostOptions& options);

/// The model that --model names. Throws Error(usage) if it is missing or not known.
cost::Model asked_model(const CostOptions& options);
/// The model that bytes and seconds of a recorded run are computed for: `asked` (a name or a file) if it is
/// not empty, else the trace's own config.json. Throws Error(usage) when the trace has none, or when what was
/// asked for has other layers or heads than the trace.
cost::Model traced_model(const trace::Sequence& sequence, const std::string& file, const std::string& asked);

/// Machine, serving, policies, threads, one batch and the budgets of --budget; prompts and generated tokens
/// are the caller's. Throws Error(usage) for what cannot be, and for policies that nothing can serve.
analysis::CostStudy cost_study(const CostOptions& options, cost::Model model);

/// Tokens of an option that must be given.
std::uint64_t required_tokens(const std::string& text, const std::string& option);

/// Throws Error(usage) for budgets beyond every context, for too many rows, and, if `budgets_needed`, for
/// policies that need to be told how much they may keep. Call it before any estimate is made.
void check_cost_study(const analysis::CostStudy& study, bool budgets_needed);

}  // namespace kvsim::tools
