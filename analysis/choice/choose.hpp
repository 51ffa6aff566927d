#pragma once
/// The best setting of a cache under a cap, found on some prompts and confirmed once on others: what `kvsim
/// choose` does, without printing.
///
/// Settings (candidates.hpp) are priced first: what does not fit the cap is not run. The prompts are
/// split before anything is looked at. On the first half, where peak loss is known to order policies, a
/// replay drops the worse half of the settings that store alike; then the rest answer in rounds. The winner
/// alone answers the second half: its number is the one to believe, as the best of many is lucky where it
/// was found.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/choice/candidates.hpp"
#include "analysis/cost/cost_fit.hpp"
#include "analysis/loop/evaluation.hpp"
#include "analysis/results/records.hpp"
#include "analysis/statistics/resamples.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "analysis/study/ranks.hpp"
#include "policies/api/registry.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::analysis {

/// What a prompt's cache may take right after the cut: so many bytes, a share of the full cache's, or what a
/// batch on a machine reads within a limit of time.
struct CacheCap {
  std::uint64_t bytes = 0;  ///< 0: no bytes
  double share = 0;         ///< 0: no share
  /// Model, machine, serving and batch: each setting keeps the most tokens with which the model of costs says
  /// that `limits` are met.
  std::optional<CostStudy> served{};
  CostLimits limits{};
  std::string text{};  ///< as typed
};

struct ChoiceRequest {
  std::string folder;    ///< of the results
  std::string model;     ///< the checkpoint, as typed
  std::string workload;  ///< the file of the items, as typed
  std::vector<capture::WorkloadItem> items;
  CacheCap cap;
  std::size_t settings = 96;  ///< drawn at most
  std::uint64_t seed = 0;     ///< of settings, of the split, and of random policies
  /// Its first cut, element type, prefill chunk, threads, memory limit and tokens to generate.
  EvaluationOptions evaluation;
  bool resume = false;   ///< go on with the choice in the folder
  double margin = 0.01;  ///< of the full cache's answers, which the winner's are compared with
};

/// A setting and what became of it.
struct TriedSetting {
  AskedPolicy policy;
  std::string left{};  ///< when it left: price, screen, round 1, ...; empty: it won
  std::string why{};
  std::optional<double> peak_loss{};  ///< mean over the screen's prompts
  std::vector<Answered> answers{};    ///< of the prompts of the search that it was asked
  RunningMean held_bytes{};           ///< after the last token, over those prompts
  RunningMean budget_share{};         ///< of a prompt's tokens, those that the cap buys
};

/// So many answers of those that the full cache gives, with Wilson's 95 % interval (Wilson 1927).
struct KeptAnswers {
  std::uint64_t right = 0, of = 0, prompts = 0;
  double kl = 0;  ///< mean over all prompts
  Interval share{};
};

struct Choice {
  TriedSetting winner;                      ///< with its answers to the prompts of the search
  TriedSetting confirmed;                   ///< the same with those to the others
  std::uint64_t fitting = 0, screened = 0;  ///< settings that fit, and that answered
  Records tried;                            ///< every setting and what became of it, as tables/tried.csv
  double bytes = 0,
         full_bytes = 0;       ///< the winner's and the full cache's, mean over the prompts that confirm
  KeptAnswers found, answers;  ///< in the search, and of the prompts that confirm
  /// Of the settings that an engine can do (engine_recipes.hpp) the best in the search, by its last prompt;
  /// none: none answered.
  std::optional<TriedSetting> nearest{};
};

/// Where replays order policies as answers do (analysis/TRUST.md): wherever the question is known, else from
/// a quarter of the cache on.
bool trusts_peak_loss(const trace::Cut& cut, double share);

/// Throws Error(usage) when the folder holds something else or a choice that was asked for differently, when
/// there are fewer than eight prompts, or when no setting fits; as Evaluation::answer() does besides.
/// Finished prompts are kept whatever ends the run; the bytes of the folder do not depend on how often it was
/// stopped, or on the number of ranks, which all make the same choice and share its prompts out. Ranks other
/// than 0 call it within help_choosing(), rank 0 within lead_ranks().
Choice choose(const ChoiceRequest& request, Evaluation& model, const policy::Registry& registry,
              Progress& progress, Ranks* ranks = nullptr);

}  // namespace kvsim::analysis
