#pragma once
/// The folder of a study, as `kvsim study` leaves it, read back.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/report/html.hpp"
#include "analysis/results/document.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

struct ReportedStudy {
  std::string title;
  std::string configuration;         ///< text of study.json; empty: there is none
  std::string incomplete;            ///< why the study is not complete; empty: it is
  std::optional<double> confidence;  ///< of the intervals
  double least_full = 0;             ///< share that a full cache must answer right; 0: any
  std::vector<TraceId> traces;
  std::vector<std::string> models;  ///< that the traces were recorded from, each once
  std::vector<std::string> notes;   ///< what the study says people must know
  Records results;
  std::map<std::string, Records> tables;  ///< by name

  /// Without columns and rows if there is none.
  const Records& table(const std::string& name) const;
};

/// The columns kvsim gives a table of a study by its name, a statistic or a kind of analysis; empty: not
/// known.
std::vector<ColumnInfo> table_columns(std::string_view table);

/// Reads study.json, results.csv, columns.csv and tables/*.csv; of these only results.csv must be there.
/// `configuration`, unless empty, stands for the text of study.json. Throws Error(input) when a file is
/// damaged, Error(usage) when `folder` is not that of a study.
ReportedStudy read_reported_study(const std::string& folder, const std::string& configuration = {});

// What a study was about, told from its results.

/// Name and text of each, names in `backquotes`; text is empty where nothing is known.
std::vector<std::pair<std::string, std::string>> study_facts(const ReportedStudy& study);

/// Every trace: workload, lengths, content.
SortableTable trace_table(const ReportedStudy& study);

/// Every policy: label, role, composition with all parameters.
SortableTable policy_table(const ReportedStudy& study);

/// The table `price` of a study (analysis/cost/price_table.hpp) as findings ask for it.
struct Price {
  double peak_bytes = 0, cache_bytes = 0, ttft_seconds = 0, tpot_seconds = 0;
  bool fits = false;  ///< in the machine's memory
};

class PriceList {
 public:
  PriceList() = default;
  /// The table may have no rows: nothing is known then.
  explicit PriceList(const Records& price);

  /// Whether something was priced, not only asked which rows it reads.
  bool priced() const { return !machine_.empty(); }
  const std::string& model() const { return model_; }
  const std::string& machine() const { return machine_; }
  /// The longest prompt that was priced, where the differences are largest, and the tokens after it.
  std::uint64_t prompt() const { return prompt_; }
  std::uint64_t generate() const { return generate_; }

  /// "all", "last 32", "none"; empty: not known.
  std::string prompt_rows(const std::string& params) const;
  /// At the longest prompt; nothing: not priced, or the point cannot be.
  std::optional<Price> at(const std::string& params, const std::string& budget) const;
  std::optional<Price> full_cache() const { return full_; }

 private:
  std::string model_, machine_;
  std::uint64_t prompt_ = 0, generate_ = 0;
  std::map<std::string, std::string> prompt_rows_;               ///< by params
  std::map<std::pair<std::string, std::string>, Price> prices_;  ///< by params and budget
  std::optional<Price> full_;
};

}  // namespace kvsim::analysis
