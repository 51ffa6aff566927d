// A program of one's own on the libraries of kvsim: replays a trace on built-in policies and on one that it
// brings itself, and prints what each loses.
//   compare_policies TRACE BUDGETS POLICY...      compare_policies run.h5 10%,25% snapkv h2o value_norm
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "analysis/results/rows.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/builtin.hpp"
#include "sim/replay/replay.hpp"
#include "traces/format/reader.hpp"

namespace {

using namespace kvsim;

/// Keeps the values of largest Euclidean norm. Without a decoder, generated tokens are appended.
class ValueNorm final : public policy::ScoredEviction {
 public:
  ValueNorm(const policy::Params& params, const policy::CacheUnit& unit) : ScoredEviction(params, unit) {}

 private:
  std::vector<double> score(const policy::Prompt& prompt) override {
    const MatrixView values = prompt.values(0);
    std::vector<double> squares(prompt.length());
    for (std::size_t position = 0; position < squares.size(); ++position) {
      const auto value = values.row(position);
      squares[position] = std::inner_product(value.begin(), value.end(), value.begin(), 0.0);
    }
    return squares;
  }
};

policy::PolicySpec value_norm_spec() {
  policy::PolicySpec spec;
  spec.name = "value_norm";
  spec.summary = "keeps the values of largest Euclidean norm";
  spec.params = {policy::sinks_param(0), policy::window_param(0), policy::tie_param()};
  spec.needs.values = true;
  spec.cost = [](const policy::Params&, const policy::CostShape&) {
    policy::Cost cost;
    cost.appends = true;
    return cost;
  };
  spec.rule = policy::EvictionRule{.scored = true, .make = policy::made<ValueNorm>};
  return spec;
}

void compare(const char* trace_name, const char* budgets, const std::vector<const char*>& policies) {
  policy::Registry registry = policy::builtin();
  registry.add(value_norm_spec());

  sim::Request request;
  for (const sim::Budget& budget : sim::parse_budgets(budgets)) {
    for (const char* text : policies)
      request.cells.push_back({policy::parse_composition(text, registry), budget});
  }
  const auto source = trace::open_trace(trace_name);
  Progress progress;
  const sim::Outcome outcome = sim::replay(trace::Sequence(*source), request, progress);

  for (const analysis::Row& row : analysis::make_rows(trace_name, request, outcome, analysis::Scope::all)) {
    if (!row.skipped.empty()) {
      std::printf("%s %s skipped: %s\n", row.policy.c_str(), row.budget.c_str(), row.skipped.c_str());
      continue;
    }
    std::printf("%s %s %.17g %.17g\n", row.policy.c_str(), row.budget.c_str(), *row["attention_loss"],
                *row["output_error"]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("compare_policies TRACE BUDGETS POLICY...\n", stderr);
    return 2;
  }
  try {
    compare(argv[1], argv[2], {argv + 3, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.kind());
  }
}
