#pragma once
/// Tables of kvsim analyze, with rows per trace and layer, as figures take them.
#include <map>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"

namespace kvsim::analysis {

/// Describes a figure of the one table that is called as the figure: `draw` gets it, unless it has no row.
FigureKind table_figure(const char* name, const char* summary,
                        const std::function<std::vector<Figure>(const Records& table)>& draw);

/// Heat maps with a cell per layer and head, means over traces, side by side.
struct LaneMaps {
  const char *title = "", *reading = "";
  struct Column {
    const char *key = "", *title = "";
    bool counted = true;  ///< whether the remark says how many of its values are undefined
  };
  std::vector<Column> columns{};
  const char* heads = "KV head";  ///< which heads they are
  const char* unit = "share";     ///< what the colours mean
  bool percent = true, diverging = false;
  bool numbers = true;  ///< in the cells
};
FigureKind lane_figure(const char* name, const char* summary, const LaneMaps& maps);

/// Column `value` of a table with one row per `layer` and `head`; layers from the top down.
HeatMap lane_map(const Records& means, const std::string& value, const std::string& heads,
                 const std::string& unit);

/// The rows of each of distinct(table, key).
std::vector<Records> split_by(const Records& table, std::string_view key);
/// The rows of each number in a column; those where it is undefined are left out.
std::map<double, Records> split_by_number(const Records& table, std::string_view key);

/// Rows that agree in the columns `by` become one, in order of first appearance: `by`, then the mean of each
/// column of `values` over the rows that have one (undefined if none has), all described as in `records`.
Records trace_means(const Records& records, const std::vector<std::string>& by,
                    const std::vector<std::string>& values);

/// What is to be said beside such means: over how many traces they are, and whether some have no value.
/// Empty when there is one trace and nothing is missing.
std::string means_remark(const Records& records, const std::vector<std::string>& values);

/// "kvsim analyze KIND run.h5": what makes the table again, up to its settings.
std::string analyze_command(const std::string& kind, const Records& records);

}  // namespace kvsim::analysis
