#include "analysis/statistics/statistics.hpp"

namespace kvsim::analysis {
namespace {

/// What every row is about, then `columns`.
std::vector<ColumnInfo> with_key(const std::vector<ColumnInfo>& columns) {
  std::vector<ColumnInfo> out{{"metric", "", "column of the results this is about"},
                              {"cut", "", "where the prompt ends for policies"},
                              {"workload", "", "kind of prompt; all: every trace"},
                              {"budget", "", "budget, as given"},
                              {"policy", "", "short name; with parameters where those differ"},
                              {"params", "", "composition with every effective parameter"}};
  out.insert(out.end(), columns.begin(), columns.end());
  return out;
}

}  // namespace

Statistics empty_statistics() {
  Statistics out;
  const std::string interval_low = "low end of the bootstrap interval; null: too few traces";
  const std::string interval_high = "its high end";
  out.means.columns = with_key(
      {{"role", "", "policy, oracle or own_budget, as in the results"},
       {"traces", "traces", "that have a value, and are averaged"},
       {"mean", "of the metric",
        "over traces; a trace's value is the mean over its seeds, which its interval draws anew, too"},
       {"low", "of the metric", interval_low},
       {"high", "of the metric", interval_high},
       {"prompt_min", "tokens", "shortest prompt among these traces"},
       {"prompt_max", "tokens", "longest prompt among these traces"}});
  out.differences.columns =
      with_key({{"other", "", "policy it is compared with"},
                {"other_params", "", "its composition"},
                {"traces", "traces", "where both have a value"},
                {"difference", "of the metric", "mean over traces of policy's value - other's"},
                {"low", "of the metric", interval_low},
                {"high", "of the metric", interval_high},
                {"better", "traces", "where policy's value is the better one"},
                {"equal", "traces", "where both are the same"},
                {"worse", "traces", "where other's value is the better one"}});
  out.ranks.columns = with_key(
      {{"traces", "traces", "where any ranked policy has a value; each has one in all of them"},
       {"rank", "", "of the mean, 1 is best; equal means share the mean of their places"},
       {"rank_low", "", "low end of the bootstrap interval of rank; null: too few traces"},
       {"rank_high", "", interval_high},
       {"mean_rank", "", "mean over traces of the rank in the trace"},
       {"best_share", "share",
        "of resamples in which the policy is best (not the probability that it is); ties share one"},
       {"concordance", "",
        "Kendall's W of the traces' rankings, 1 when all agree: 12 sum (S_i - mean S)^2 / (m^2 (n^3 - n) - m "
        "sum (t^3 - t)), S_i the sum of policy i's ranks over m traces, n policies, t the sizes of groups of "
        "ties; without policies that have no value in some trace"}});
  return out;
}

}  // namespace kvsim::analysis
