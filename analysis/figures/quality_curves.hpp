#pragma once
/// Curves of a metric against budget: what figures of quality are made of.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/figures/paired_differences.hpp"
#include "analysis/figures/results_view.hpp"

namespace kvsim::analysis {

/// Of one metric at one cut: its means, and the gap of each to the best policy of its budget. All that is
/// given must outlive it.
class QualityCurves {
 public:
  QualityCurves(const ResultsView& view, const FigureTables& tables, const FigureChoice& choice,
                const Metric& metric);

  bool empty() const { return means_.series.empty(); }
  /// Policies, grey ones, the full cache and a bound.
  const Chart& means() const { return means_; }
  /// How much worse the policies are than the best of each budget. The axis ends at the largest gap of the
  /// better half of them, by their mean gap over budgets.
  const Chart& gaps() const { return gaps_; }
  /// Whether the largest gap is more than three times as large as that: then `means` squeezes the better half
  /// into a band.
  bool squeezed() const;
  /// What the axis of the gaps leaves out; empty: nothing.
  std::string beyond() const;

  std::string title(const FigureChoice& choice) const;
  std::string reading() const;
  const NamedPolicies& named() const { return named_; }
  /// The numbers of both charts.
  Records data() const;

 private:
  void read_means(const FigureTables& tables, const FigureChoice& choice);
  Series bound(const FigureChoice& choice) const;
  Series oracle() const;
  Series placed(Series series, const FigureChoice& choice) const;
  std::optional<double> own_place(const std::string& label, const FigureChoice& choice) const;
  void add_policies(const FigureChoice& choice);
  void add_gaps();
  void limit_gaps();

  const ResultsView& view_;
  const Metric& metric_;
  NamedPolicies named_, known_colours_;
  std::map<std::string, Series> curves_{};
  std::map<std::string, std::string> roles_{};
  std::map<std::string, std::vector<Gap>> all_gaps_{};
  std::vector<std::string> beyond_{};
  Chart means_{}, gaps_{};
  std::string bounds_{};  ///< what the neutral lines are
  std::uint64_t traces_ = 0;
  bool interval_ = false, levels_ = false;
};

}  // namespace kvsim::analysis
