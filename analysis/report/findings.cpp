#include "analysis/report/findings.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/results/cuts.hpp"

namespace kvsim::analysis {
namespace {

void append(Findings& all, Findings more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

/// In the order of the rules: a finding that every cut has is one, others name the cut.
Findings told_once(const std::vector<Findings>& by_cut, const std::vector<Evidence>& cuts) {
  Findings out;
  const auto same = [](const Finding& a) {
    return [&a](const Finding& b) { return a.text == b.text && a.details == b.details; };
  };
  std::size_t longest = 0;
  for (const Findings& findings : by_cut) longest = std::max(longest, findings.size());
  for (std::size_t i = 0; i < longest; ++i) {
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      if (i >= by_cut[c].size()) continue;
      Finding finding = by_cut[c][i];
      const bool everywhere = std::ranges::all_of(
          by_cut, [&](const Findings& findings) { return std::ranges::any_of(findings, same(finding)); });
      if (!everywhere) finding.text = capitalised(cut_title(cuts[c].cut())) + ". " + finding.text;
      if (std::ranges::none_of(out, same(finding))) out.push_back(std::move(finding));
    }
  }
  return out;
}

}  // namespace

Findings what_limits(const std::vector<Evidence>& cuts, const Records& results, const Records& skipped) {
  std::vector<Findings> by_cut;
  for (const Evidence& evidence : cuts) {
    const Records rows = at_cut(results, evidence.cut());
    Findings& here = by_cut.emplace_back(open_loop(evidence));
    append(here, few_traces(evidence));
    append(here, unequal_lengths(evidence));
    append(here, beyond_budget(rows));
    append(here, never_evicted(rows));
  }
  Findings all = told_once(by_cut, cuts);
  append(all, instruction_before(results));
  append(all, same_results(results));
  append(all, skipped_cells(skipped));
  return all;
}

}  // namespace kvsim::analysis
