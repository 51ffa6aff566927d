#pragma once
/// What `kvsim view` and `kvsim trace show` replay: policies at budgets on one sequence of a trace.
#include <string>
#include <vector>

#include "analysis/view/cache_view.hpp"
#include "tools/options/chosen_sequences.hpp"
#include "tools/options/command_tree.hpp"

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
  std::vector<ChosenSequence> chosen;  ///< the sequence, once per cut
  analysis::CacheView view{};
  std::vector<sim::Cell> cells{};  ///< policies within budgets
  std::vector<trace::Cut> cuts{};

  const trace::Sequence& sequence() const { return chosen.front().sequence; }
  /// What results call the run: its trace, and the item of the workload that it is.
  std::vector<std::string> names() const;
};

/// Replays what is asked for while the front end shows how far it is; without policies the text alone.
/// Throws Error(usage) for several sequences, or when no cell can be run.
ViewedRun viewed_run(const std::string& file, const ViewedRunOptions& options, bool quiet);

/// Adds the answers in a file of rows of kvsim evaluate, or in the folder of a study. Throws as
/// analysis::add_answers().
void add_read_answers(const std::string& path, ViewedRun& run);

}  // namespace kvsim::tools
