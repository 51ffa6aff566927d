#pragma once
/// The folder of a study, as `kvsim study` leaves it, read back.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace kvsim::analysis
