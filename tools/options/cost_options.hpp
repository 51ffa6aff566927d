#pragma once
/// The options that kvsim cost estimate and kvsim cost fit share: what is served, how, and on what; and what
/// people write there, as numbers.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cost/cost_fit.hpp"
#include "analysis/cost/cost_study.hpp"
#include "tools/options/command_tree.hpp"
#include "tools/options/output_options.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::tools {

/// How many of something: digits only, at least 1; `hint` is what messages end with.
std::uint64_t parse_count(std::string_view text, const std::string& where, const std::string& hint = "");

/// A time above zero: 2s, 50ms, 800us.
double parse_seconds(std::string_view text, const std::string& where);
/// A share from 0% to 100%.
double parse_share(std::string_view text, const std::string& where);

/// Values of one quantity: of a comma list, `low..high:xF` multiplies by F, `low..high:+S` adds S.
struct SweepAxis {
  std::string name{};                 ///< prompt-tokens, generate, batch or budget
  std::vector<std::string> values{};  ///< ranges spelled out
};
/// "prompt-tokens=1K..128K:x2,200K". Throws Error(usage), with the nearest names of axes.
SweepAxis parse_axis(std::string_view text);

/// Limits as typed; empty: not given.
struct LimitOptions {
  std::string memory{}, first_token{}, per_token{};  ///< "80GiB", "2s", "50ms"
};
/// Memory that is not given is the machine's. Throws Error(usage).
analysis::CostLimits parse_limits(const LimitOptions& options, std::uint64_t machine_memory);

/// Options of how it is served, as typed; empty: not given.
struct ServingOptions {
  std::string stored_kv_heads{}, kv = "fp16", page{}, chunk{}, tensor_parallel = "1", attention = "flash",
                                 rows = "written";
  bool head_pages = false, padded = false, holes = false, preallocated = false;
  std::vector<std::string> offload{};  ///< "weights=50%", "cache=80%", "cache-ssd=20%"
  std::string buffer{}, hit_rate{}, prefetch{};
  double cache_traffic = 1, host_floor_ms = 0, row_share = 0.1;
  std::optional<double> weight_bits{};  ///< absent: the model's
};
/// All but prompt, generate and batch. Throws Error(usage) with the nearest names.
cost::Serving parse_serving(const ServingOptions& options, const cost::Model& model);

/// The options that kvsim cost estimate and kvsim cost fit share: what is served, how, and on what.
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
