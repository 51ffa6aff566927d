// The bounds over allocations on recorded runs: no registered policy exceeds the bound of its own class, and
// the split made for the bound reaches it.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/support/every_eviction.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/study.hpp"
#include "traces/workloads/synthetic.hpp"

namespace kvsim::test_bound_laws {

using policy::Holding;

namespace {

// Tolerance: rows are floats, and their mean over heads is summed in another order than the bound's.
constexpr double kRounding = 2e-6;

double r_oracle(const sim::Outcome& outcome, const sim::CellOutcome& cell) {
  double sum = 0;
  for (std::size_t layer = 0; layer < outcome.n_layers; ++layer) {
    double best = 0, all = 0;
    for (std::size_t head = 0; head < outcome.n_kv_heads; ++head) {
      const sim::LaneOutcome& lane = cell.lanes[layer * outcome.n_kv_heads + head];
      best += lane.importance_oracle;
      all += lane.importance;
    }
    sum += best / all;
  }
  return sum / outcome.n_layers;
}

sim::Outcome bounded(const trace::Source& source, sim::Request request, trace::Cut::At cut) {
  request.bounds = true;
  Progress progress;
  return sim::replay(trace::Sequence(source, 0, trace::Cut{.at = cut}), request, progress);
}

std::vector<std::string> everything() {
  std::vector<std::string> out = test::every_eviction();
  for (const char* base : {"snapkv(window=4)", "h2o(phase=post)", "tova", "optimal", "future_mean"})
    for (const std::string& text : test::every_allocation(base)) {
      try {
        policy::parse_composition(text, policy::builtin());
        out.push_back(text);
      } catch (const Error&) {
      }
    }
  return out;
}

/// Returns how many cells of each class were compared with a bound.
std::map<Holding, std::size_t> check_bounds(const trace::Source& trace, trace::Cut::At cut,
                                            const std::vector<std::string>& budgets) {
  const sim::Request request = test::request_of(everything(), budgets);
  const sim::Outcome outcome = bounded(trace, request, cut);
  std::map<Holding, std::size_t> seen;
  for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
    const sim::CellOutcome& cell = outcome.cells[i];
    const policy::Composition& composition = request.cells[i].composition;
    CAPTURE(composition.params, request.cells[i].budget.text);
    if (!cell.skipped.empty()) {
      CHECK(!cell.holding);
      CHECK(!cell.attention_loss_bound);
      CHECK(!cell.r_bound);
      continue;
    }
    REQUIRE(cell.r_bound);
    CHECK(test::r_avg(outcome, i) <= r_oracle(outcome, cell) + 1e-12);
    CHECK(r_oracle(outcome, cell) <= *cell.r_bound + 1e-12);
    CHECK(*cell.r_bound <= 1 + 1e-12);
    CHECK(cell.holding.has_value() == !composition.eviction.spec->own_budget());
    CHECK(cell.attention_loss_bound.has_value() == cell.holding.has_value());
    if (!cell.holding) continue;
    CHECK(*cell.attention_loss_bound <= test::loss(cell) + kRounding);
    ++seen[*cell.holding];
    // The class that the policy's spec states, unless the allocation lets some lane never evict.
    if (cell.holding != composition.eviction.holding()) {
      CHECK(cell.holding == Holding::append_only);
      const auto never_evicts = [&](const sim::LaneOutcome& lane) {
        return lane.budget_tokens > outcome.prompt;
      };
      CHECK(std::any_of(cell.lanes.begin(), cell.lanes.end(), never_evicts));
    }
    if (composition.name == "optimal+best_split" || composition.name == "future_mean+best_split")
      if (!composition.layer_unit() && composition.allocation.params.word("scope") == "head")
        CHECK(*cell.attention_loss_bound == Approx(test::loss(cell)).margin(kRounding));
  }
  return seen;
}

}  // namespace

TEST_CASE("no policy and no split exceeds the bound of its class, on noise") {
  for (const trace::Cut::At cut : {trace::Cut::At::prompt, trace::Cut::At::question}) {
    const trace::MemoryTrace trace =
        test::random_trace({.prompt = 60, .decode = 15, .sharpness = 2.0, .context = 50});
    std::map<Holding, std::size_t> seen = check_bounds(trace, cut, {"14", "40", "60", "70"});
    CHECK(seen[Holding::managed] > 80);
    CHECK(seen[Holding::append_only] > 80);
    CHECK(seen[Holding::overshoot] > 20);
  }
}

TEST_CASE("no policy and no split exceeds the bound of its class, in a sliding window and on structure") {
  check_bounds(test::random_trace({.prompt = 60, .decode = 15, .layer_window = {-1, 16}}),
               trace::Cut::At::prompt, {"14"});
  trace::SyntheticOptions options;
  options.layers = 2;
  options.head_dim = 32;
  options.prompt = 150;
  options.decode = 20;
  check_bounds(trace::synthetic_trace(options), trace::Cut::At::prompt, {"20%"});
}

TEST_CASE("cells of one class and total have one bound, and each class its own") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 50, .decode = 20, .sharpness = 2.0});
  const sim::Outcome outcome = bounded(trace,
                                       test::request_of({"h2o", "optimal", "tova+pyramid", "snapkv(window=4)",
                                                         "future_mean+pyramid", "h2o(phase=post)", "full"},
                                                        {"20"}),
                                       trace::Cut::At::prompt);
  const auto bound = [&](std::size_t cell) { return *outcome.cells[cell].attention_loss_bound; };
  CHECK(bound(1) == bound(0));
  CHECK(bound(2) == bound(0));
  CHECK(bound(4) == bound(3));
  CHECK(bound(3) < bound(5));  // every generated token, compared with one more
  CHECK(bound(5) < bound(0));
  CHECK(!outcome.cells[6].holding);
  CHECK(*outcome.cells[6].r_bound == 1);
}

TEST_CASE("bounds do not depend on threads, on other cells or on being asked for") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 10});
  sim::Request request =
      test::request_of({"h2o", "snapkv(window=4)+pyramid", "optimal+best_split", "tova"}, {"10"});
  const sim::Outcome together = bounded(trace, request, trace::Cut::At::prompt);
  request.threads = 3;
  const sim::Outcome threaded = bounded(trace, request, trace::Cut::At::prompt);
  const sim::Outcome unasked = test::run(trace, request);
  for (std::size_t i = 0; i < request.cells.size(); ++i) {
    CHECK(threaded.cells[i].r_bound == together.cells[i].r_bound);
    CHECK(threaded.cells[i].attention_loss_bound == together.cells[i].attention_loss_bound);
    CHECK(unasked.cells[i].r_bound == together.cells[i].r_bound);
    CHECK(!unasked.cells[i].attention_loss_bound);
    CHECK(test::numbers(unasked.cells[i]) == test::numbers(together.cells[i]));
    sim::Request alone = request;
    alone.cells = {request.cells[i]};
    const sim::Outcome one = bounded(trace, alone, trace::Cut::At::prompt);
    CHECK(one.cells[0].r_bound == together.cells[i].r_bound);
    CHECK(one.cells[0].attention_loss_bound == together.cells[i].attention_loss_bound);
  }
}

TEST_CASE("only oracles with a convex curve of losses are split by it") {
  for (const char* text :
       {"future_mass+best_split", "future_mean(generated=evict)+best_split",
        "future_mean(horizon=4)+best_split", "future_max_logit+best_split", "optimal+adakv"})
    CHECK_THROWS_AS(policy::parse_composition(text, policy::builtin()), Error);
  const sim::Outcome outcome =
      test::run(test::random_trace({}), test::request_of({"optimal+best_split(normalise=true)"}, {"6"}));
  CHECK_THAT(outcome.cells[0].skipped, Catch::Contains("normalise=true is of scores"));
}

}  // namespace kvsim::test_bound_laws
