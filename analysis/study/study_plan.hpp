#pragma once
/// A study file turned into what is to be done: patterns expanded, names given, every default filled in.
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/cost/price_table.hpp"
#include "analysis/kinds/kind.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/study/config/study_config.hpp"
#include "analysis/study/pinned_inputs.hpp"
#include "analysis/study/study_prompts.hpp"

namespace kvsim::analysis {

/// A trace of the study, by the name it has in results. One that is captured from a prompt has the name of
/// its item, which the closed loop calls it by: rows of both loops join on it.
struct StudyTrace {
  std::string name, path;
  std::string workload;                 ///< kind of prompt, if the study says; empty: the trace may
  std::optional<std::size_t> prompt{};  ///< the one to capture it from; none: it was there
  std::uint64_t tokens = 0;             ///< as far as known: for progress and estimates
  std::string problem{};                ///< why it cannot be read; empty: it can, or is not made yet
  std::vector<trace::Cut> cuts{};       ///< where its prompt ends for policies
  bool read = true;                     ///< replays or analyses read it; false: only its prompt is answered
};

struct PlannedAnalysis {
  const Kind* kind = nullptr;
  std::string table;
  Settings settings;
};

struct StudyPlan {
  StudyConfig config;  ///< effective; paths as this process sees them
  std::string file;    ///< the study's own
  std::string folder;  ///< of the results
  const policy::Registry* registry = nullptr;
  StudyPrompts prompts;
  std::vector<StudyTrace> traces;  ///< given ones, then captured ones
  std::vector<AskedPolicy> policies;
  std::vector<sim::Budget> budgets;
  std::vector<trace::Cut> cuts;  ///< as asked; empty: each trace has its own
  std::vector<Scope> scopes;
  std::vector<PlannedAnalysis> analyses;
  /// What policies are priced for, with the prompts that the study asks for; none: it names no machine.
  std::optional<PriceQuestion> price{};
  std::vector<PinnedFile> inputs{};  ///< pinned_inputs(), once the study is to run

  /// Everything replay needs to know but seed, threads and tables.
  sim::Request request() const;
  /// Whether anything but the closed loop is asked for.
  bool reads_traces() const;
  /// Of one replay, or of one run of the closed loop.
  std::size_t cells() const { return policies.size() * budgets.size(); }
};

/// Reads the study file. `folder`: where results go; empty: the study's name. `registry`: the policies there
/// are; it must outlive the plan. `model`: the one to capture and answer with instead of the file's; empty:
/// the file's. Throws Error(usage) naming file and field for what cannot be asked for, Error(input) for files
/// that are not there.
StudyPlan plan_study(const std::string& file, const std::string& folder, const policy::Registry& registry,
                     const NoteListener& note, const std::string& model = "");

/// The effective configuration with its paths seen from `from`.
boost::json::object effective_study(const StudyPlan& plan, const std::string& from);

}  // namespace kvsim::analysis
