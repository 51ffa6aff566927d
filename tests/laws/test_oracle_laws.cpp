// The chain of bounds on recorded runs, for every registered eviction: the loss of the best set of every step
// <= the loss of the best permanent schedule <= the loss of any policy that never readmits a token.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/support/every_eviction.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/study.hpp"
#include "traces/workloads/synthetic.hpp"

namespace kvsim::test_oracle_laws {

namespace {

// Tolerance: rows are floats, and their mean over heads is summed in another order than the oracle's.
constexpr double kPerStep = 2e-6;

/// Returns the most positions held at once while decoding. Requires that no token is readmitted.
std::size_t most_held(const std::vector<sim::ResidentInterval>& lane, std::size_t n_steps) {
  std::vector<int> change(n_steps + 2);
  std::set<std::int32_t> seen;
  for (const sim::ResidentInterval& stay : lane) {
    REQUIRE(seen.insert(stay.position).second);
    ++change[std::max<std::uint32_t>(stay.first, 1)];
    --change[std::max<std::uint32_t>(stay.last, 1)];
  }
  int held = 0, most = 1;
  for (std::size_t s = 1; s <= n_steps; ++s) most = std::max(most, held += change[s]);
  return static_cast<std::size_t>(most);
}

/// Replays `oracle` with one cell for each entry of `budgets`, in tokens per lane.
std::map<std::size_t, sim::CellOutcome> replay_oracle(const trace::Source& trace, const std::string& oracle,
                                                      const std::set<std::size_t>& budgets) {
  std::vector<std::string> texts;
  texts.reserve(budgets.size());
  for (const std::size_t budget : budgets) texts.push_back(std::to_string(budget));
  const sim::Outcome outcome = test::run(trace, test::request_of({oracle}, texts));
  std::map<std::size_t, sim::CellOutcome> out;
  for (std::size_t i = 0; const std::size_t budget : budgets) {
    REQUIRE(outcome.cells[i].skipped.empty());
    out[budget] = outcome.cells[i++];
  }
  return out;
}

/// Returns how many cells were compared with the optimum.
std::size_t check_bounds(const trace::Source& trace, const std::vector<std::string>& budgets) {
  sim::Request request = test::request_of(test::every_eviction(), budgets);
  request.decisions = true;
  const sim::Outcome outcome = test::run(trace, request);
  const std::size_t n_lanes = std::size_t{outcome.n_layers} * outcome.n_kv_heads;

  // A policy that appends, or lets a token attend before another is evicted, holds more than its budget, so
  // the optimum may hold as much.
  std::vector<std::vector<std::size_t>> held(outcome.cells.size());
  std::set<std::size_t> slots;
  for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
    if (!outcome.cells[i].skipped.empty()) continue;
    for (const auto& lane : outcome.cells[i].resident_intervals)
      held[i].push_back(most_held(lane, outcome.decode));
    slots.insert(held[i].begin(), held[i].end());
  }
  const auto best = replay_oracle(trace, "optimal", slots);
  const double margin = kPerStep * static_cast<double>(outcome.decode);
  std::size_t n_checked = 0;
  for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
    for (std::size_t lane = 0; lane < held[i].size(); ++lane) {
      CAPTURE(request.cells[i].composition.params, request.cells[i].budget.text, lane, held[i][lane]);
      const sim::LaneOutcome& optimum = best.at(held[i][lane]).lanes[lane];
      CHECK(optimum.attention_loss <= outcome.cells[i].lanes[lane].attention_loss + margin);
    }
    n_checked += held[i].empty() ? 0 : 1;
  }
  for (const auto& [budget, cell] : best)
    for (std::size_t lane = 0; lane < n_lanes; ++lane)
      CHECK(cell.lanes[lane].attention_loss_oracle <= cell.lanes[lane].attention_loss + margin);
  return n_checked;
}

}  // namespace

TEST_CASE("no registered eviction loses less attention than the optimal schedule, on noise") {
  for (const double sharpness : {0.5, 2.0}) {
    const trace::MemoryTrace trace = test::random_trace({.prompt = 60, .decode = 25, .sharpness = sharpness});
    CHECK(check_bounds(trace, {"12", "45"}) > 15);
  }
}

TEST_CASE("no registered eviction loses less attention than the optimal schedule, in a sliding window") {
  CHECK(check_bounds(test::random_trace({.prompt = 60, .decode = 25, .layer_window = {-1, 16}}), {"12"}) > 8);
}

TEST_CASE("no registered eviction loses less attention than the optimal schedule, on structure") {
  trace::SyntheticOptions options;
  options.layers = 2;
  options.head_dim = 32;
  options.prompt = 200;
  options.decode = 40;
  CHECK(check_bounds(trace::synthetic_trace(options), {"20%"}) > 10);
}

TEST_CASE(
    "the optimum under one set per layer lies between the lanes' own optima and every layer-wide policy") {
  const trace::MemoryTrace trace = test::random_trace({.kv_heads = 3, .prompt = 60, .decode = 25});
  const std::vector<std::string> policies = {"optimal", "optimal(unit=layer)", "future_mass(unit=layer)",
                                             "tova"};
  const sim::Outcome outcome = test::run(trace, test::request_of(policies, {"10", "30"}));
  for (std::size_t budget = 0; budget < 2; ++budget) {
    std::vector<double> loss;
    for (std::size_t policy = 0; policy < policies.size(); ++policy)
      loss.push_back(test::loss(outcome.cells[budget * policies.size() + policy]));
    CHECK(loss[0] < loss[1]);
    CHECK(loss[1] <= loss[2] + kPerStep);
    CHECK(loss[1] < loss[3]);
  }
}

TEST_CASE("the optimal schedule beats greedy, and greedy the policies without the future, on structure") {
  trace::SyntheticOptions options;
  options.layers = 2;
  options.head_dim = 32;
  options.prompt = 300;
  options.decode = 60;
  const trace::MemoryTrace trace = trace::synthetic_trace(options);
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"optimal", "future_mass", "h2o", "window"}, {"15%"}));
  CHECK(test::loss(outcome.cells[0]) < test::loss(outcome.cells[1]));
  CHECK(test::loss(outcome.cells[1]) < test::loss(outcome.cells[2]));
  CHECK(test::loss(outcome.cells[1]) < test::loss(outcome.cells[3]));
}

TEST_CASE("oracles do not depend on threads or on other cells") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 50, .decode = 20});
  const std::vector<std::string> oracles = {"optimal", "future_mass(horizon=4)", "future_mean",
                                            "future_max_logit(generated=evict)", "optimal(unit=layer)"};
  sim::Request together = test::request_of(oracles, {"10", "25%"});
  const sim::Outcome all = test::run(trace, together);
  together.threads = 3;
  const sim::Outcome threaded = test::run(trace, together);
  for (std::size_t i = 0; i < together.cells.size(); ++i) {
    CHECK(test::numbers(threaded.cells[i]) == test::numbers(all.cells[i]));
    sim::Request alone = together;
    alone.cells = {together.cells[i]};
    const sim::Outcome one = test::run(trace, alone);
    for (std::size_t lane = 0; lane < one.cells[0].lanes.size(); ++lane)
      CHECK(one.cells[0].lanes[lane].attention_loss == all.cells[i].lanes[lane].attention_loss);
  }
}

}  // namespace kvsim::test_oracle_laws
