#pragma once
/// The files that are made from all finished tasks of a study: rows by scope, tables/ and columns.csv.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/cost/price_table.hpp"
#include "analysis/kinds/kind.hpp"
#include "analysis/study/config/study_config.hpp"
#include "analysis/study/study_folder.hpp"

namespace kvsim::analysis {

/// A table made by an analysis, and the tasks its rows come from, in order.
struct StudyTable {
  const Kind* kind = nullptr;
  std::string name;
  const Settings* settings = nullptr;
  std::vector<std::string> tasks{};
};

/// The closed loop: tasks whose rows are answers, in order, and the role of each policy by its params.
struct StudyAnswers {
  std::vector<std::string> tasks{};
  std::map<std::string, std::string> roles{};
};

/// What is priced: the policies that can be served, the full cache among them, and for what.
struct StudyPrices {
  std::vector<policy::Composition> policies{};
  std::vector<sim::Budget> budgets{};
  std::optional<PriceQuestion> question{};  ///< its prompts may be empty: usual_prompts()
};

struct StudyResults {
  std::vector<std::string> notes;  ///< what people must know to read the tables
  std::vector<Skipped> skipped;    ///< as tables/skipped.csv has them
  std::uint64_t rows = 0;          ///< of results.csv and of the files of other scopes
  std::uint64_t answers = 0;       ///< rows of tables/answers.csv
  bool winners = false;            ///< whether tables/winners.csv names any
};

/// Reads every finished task back and writes the tables: the bytes do not depend on when a task was run.
/// `replays`: tasks whose rows are results, in order; none: nothing was replayed. Throws Error(input)
/// when a file cannot be written or a task's is damaged.
StudyResults write_results(StudyFolder& folder, const StudyConfig& config,
                           const std::vector<StudiedTrace>& traces, const std::vector<std::string>& replays,
                           const StudyAnswers& answers, const std::vector<StudyTable>& tables,
                           const StudyPrices& prices = {}, Progress* progress = nullptr);

/// study.json: the effective configuration, and what was found. `complete`: everything else is there.
std::string study_text(const boost::json::object& effective, const std::vector<StudiedTrace>& traces,
                       const std::vector<std::string>& notes, bool complete);

}  // namespace kvsim::analysis
