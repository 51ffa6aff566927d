#pragma once
/// What `kvsim view` and `kvsim trace show` replay: policies at budgets on one sequence of a trace.
#include <string>
#include <vector>

#include "analysis/view/cache_view.hpp"
#include "tools/requests/command_tree.hpp"

namespace kvsim::tools {

struct ViewedRunOptions {
  std::vector<std::string> policies{}, budgets{};
  std::string cut = "prompt", sequence{};
  unsigned threads = 0;
  std::uint64_t seed = 0;
};

/// Adds --policy, --budget, --cut, --sequence, --threads and --seed.
void add_viewed_run_options(Command command, ViewedRunOptions& options);

struct ViewedRun {
  analysis::CacheView view{};
  std::vector<sim::Cell> cells{};  ///< policies within budgets
};

/// Replays what is asked for while the front end shows how far it is; without policies the text alone.
/// Throws Error(usage) for several sequences, or when no cell can be run.
ViewedRun viewed_run(const std::string& file, const ViewedRunOptions& options, bool quiet);

}  // namespace kvsim::tools
