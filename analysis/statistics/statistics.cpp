#include "analysis/statistics/statistics.hpp"

#include <algorithm>
#include <map>

#include "analysis/results/cuts.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/cut_statistics.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

void check(const StatisticsOptions& options) {
  if (options.resamples < 100 || options.resamples > 100000)
    usage_error(std::to_string(options.resamples) + " is not from 100 to 100000", "resamples");
  if (!(options.confidence >= 0.5 && options.confidence <= 0.999))
    usage_error(exact_text(options.confidence) + " is not from 0.5 to 0.999", "confidence");
}

void append(Records& all, Records more) {
  for (std::vector<Value>& row : more.rows) all.rows.push_back(std::move(row));
}

/// What is to be said at every cut is said once, anything else beside its cut.
std::vector<std::string> told_once(const std::map<std::string, std::vector<std::string>>& notes_by_cut,
                                   const std::vector<std::string>& cuts) {
  std::map<std::string, std::size_t> told;
  for (const auto& [cut, notes] : notes_by_cut)
    for (const std::string& note : notes) ++told[note];
  std::vector<std::string> out;
  for (const std::string& cut : cuts) {
    for (const std::string& note : notes_by_cut.at(cut)) {
      const std::string text = told[note] == cuts.size() ? note : "Cut " + cut + ": " + note;
      if (std::ranges::find(out, text) == out.end()) out.push_back(text);
    }
  }
  return out;
}

}  // namespace

bool alike_lengths(std::uint64_t shortest, std::uint64_t longest) {
  // Prompts made for one length differ by a word.
  return longest <= shortest + std::max<std::uint64_t>(2, shortest / 100);
}

Statistics statistics_of(const Records& results, const std::vector<TraceId>& traces,
                         const StatisticsOptions& options) {
  std::vector<const Metric*> chosen;
  for (const std::string& key : options.metrics) chosen.push_back(&metric(key));
  if (chosen.empty())
    for (const Metric& each : metrics()) chosen.push_back(&each);
  return statistics_of(results, traces, options, chosen);
}

Statistics statistics_of(const Records& results, const std::vector<TraceId>& traces,
                         const StatisticsOptions& options, const std::vector<const Metric*>& chosen) {
  check(options);
  Statistics out = empty_statistics();
  const std::vector<std::string> cuts = cuts_of(results);
  std::map<std::string, std::vector<std::string>> notes;
  for (const std::string& cut : cuts) {
    const TraceValues study(results, cut, traces, chosen);
    Statistics made = cut_statistics(study, options, cut);
    append(out.means, std::move(made.means));
    append(out.differences, std::move(made.differences));
    append(out.ranks, std::move(made.ranks));
    notes[cut] = std::move(made.notes);
  }
  out.notes = told_once(notes, cuts);
  return out;
}

}  // namespace kvsim::analysis
