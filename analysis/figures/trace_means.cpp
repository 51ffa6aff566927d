#include "analysis/figures/trace_means.hpp"

#include <map>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/layer_tables.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/shell_word.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostTracesNamed = 3;

std::vector<std::size_t> columns_of(const Records& records, const std::vector<std::string>& keys) {
  std::vector<std::size_t> out;
  for (const std::string& key : keys) out.push_back(records.column(key));
  return out;
}

}  // namespace

Records trace_means(const Records& records, const std::vector<std::string>& by,
                    const std::vector<std::string>& values) {
  const std::vector<std::size_t> keys = columns_of(records, by), sources = columns_of(records, values);
  Records out;
  for (const std::size_t column : keys) out.columns.push_back(records.columns[column]);
  for (const std::size_t column : sources) out.columns.push_back(records.columns[column]);
  std::map<std::vector<Value>, std::size_t> known;
  std::vector<std::vector<RunningMean>> means;
  for (const std::vector<Value>& row : records.rows) {
    std::vector<Value> name;
    for (const std::size_t column : keys) name.push_back(row[column]);
    const auto [found, fresh] = known.try_emplace(name, means.size());
    if (fresh) {
      means.emplace_back(sources.size());
      out.rows.push_back(std::move(name));
    }
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (const std::optional<double> value = number(row[sources[i]])) means[found->second][i].add(*value);
  }
  for (std::size_t row = 0; row < means.size(); ++row)
    for (const RunningMean& mean : means[row]) out.rows[row].push_back(value_of(mean.value()));
  return out;
}

std::string traces_text(std::uint64_t traces, const std::string& workload) {
  const std::string of = workload.empty() || workload == "all" ? "" : " of " + workload;
  return traces == 1 ? "one trace" + of : "mean over " + std::to_string(traces) + " traces" + of;
}

std::string means_remark(const Records& records, const std::vector<std::string>& values) {
  std::uint64_t missing = 0;
  for (const std::size_t column : columns_of(records, values))
    for (const std::vector<Value>& row : records.rows) missing += number(row[column]) ? 0 : 1;
  const std::size_t traces = distinct(records, "trace").size();
  std::string out = traces > 1 ? capitalised(traces_text(traces)) + '.' : "";
  if (missing > 0)
    out += (out.empty() ? "" : " ") + std::to_string(missing) +
           (missing == 1 ? " value is undefined and left out." : " values are undefined and left out.");
  return out;
}

std::string analyze_command(const std::string& kind, const Records& records) {
  const std::vector<std::string> names = distinct(records, "trace");
  const bool few = names.size() <= kMostTracesNamed;
  return "kvsim analyze " + kind + ' ' + (few ? shell_words(names) : "TRACE...") + " --format csv";
}

}  // namespace kvsim::analysis
