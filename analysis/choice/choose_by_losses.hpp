#pragma once
/// The best setting under a cap where there are recorded runs and no checkpoint to answer with: the one that
/// a replay finds to lose least of what each step attends most (peak_loss in analysis/results/METRICS.md).
///
/// Half of the runs choose, the others confirm. Codes are not tried: they lose no attention.
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/choice/choose.hpp"
#include "analysis/results/records.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "policies/api/registry.hpp"
#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::analysis {

struct LossChoiceRequest {
  std::string folder;              ///< of the tables
  std::vector<std::string> files;  ///< of the runs, as typed
  trace::Cut cut;                  ///< of all runs
  std::vector<const trace::Sequence*> runs;
  CacheCap cap;               ///< bytes or a share of them
  std::size_t settings = 64;  ///< drawn at most
  std::uint64_t seed = 0;     ///< of settings, of the split, and of random policies
  unsigned threads = 0;
};

/// A setting and what replays say of it.
struct ReplayedSetting {
  AskedPolicy policy;
  std::string why{};           ///< it cannot run
  RunningMean peak_loss{};     ///< over the runs that it was replayed on
  RunningMean held_bytes{};    ///< after the last token
  RunningMean budget_share{};  ///< of a prompt's tokens, those that the cap buys
};

struct LossChoice {
  std::vector<ReplayedSetting>
      tried;                  ///< on the runs that choose, best first, behind them those that cannot run
  ReplayedSetting confirmed;  ///< the first on the others
  std::size_t chose = 0, confirm = 0;  ///< runs
  double full_bytes = 0;               ///< mean over the runs that confirm
  Records table;                       ///< tables/tried.csv
  double least_share = 1;              ///< of a prompt's tokens that the cap buys, over all runs
};

/// Throws Error(usage) when the folder holds something, there are fewer than two runs or no setting runs;
/// Error(input) for runs without a measured step; and what sim::replay() throws.
LossChoice choose_by_losses(const LossChoiceRequest& request, const policy::Registry& registry,
                            Progress& progress);

}  // namespace kvsim::analysis
