// Laws that hold on every trace, whatever its numbers.
#include <catch2/catch.hpp>

#include "sim/replay/idle_parts.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/study.hpp"
#include "traces/workloads/synthetic.hpp"

namespace kvsim::test_replay_laws {

namespace {

trace::MemoryTrace structured(std::uint64_t seed = 1) {
  trace::SyntheticOptions options;
  options.layers = 3;
  options.head_dim = 32;
  options.prompt = 300;
  options.decode = 40;
  options.seed = seed;
  return trace::synthetic_trace(options);
}

const std::vector<std::string> kBudgets = {"10%", "25%", "50%"};

}  // namespace

TEST_CASE("the oracle dominates every policy, in importance and in attention") {
  const trace::MemoryTrace trace = structured();
  const sim::Outcome outcome = test::run(trace, test::request_of(test::every_policy(), kBudgets));
  std::size_t ran = 0;
  for (const sim::CellOutcome& cell : outcome.cells) {
    ran += cell.skipped.empty() ? 1 : 0;
    for (const sim::LaneOutcome& lane : cell.lanes) {
      CHECK(lane.importance_kept <= lane.importance_oracle + 1e-9);
      CHECK(lane.attention_loss >= lane.attention_loss_oracle - 1e-9);
      CHECK(lane.attention_loss >= 0);
    }
  }
  CHECK(ran * 10 >= outcome.cells.size() * 8);
}

TEST_CASE("full loses nothing, exactly") {
  const trace::MemoryTrace trace = structured();
  const sim::Outcome outcome = test::run(trace, test::request_of({"full"}, {"10%"}));
  for (const sim::LaneOutcome& lane : outcome.cells[0].lanes) {
    CHECK(lane.attention_loss == 0);
    CHECK(lane.output_error == 0);
    CHECK(lane.importance_kept == Approx(lane.importance));
    CHECK(lane.kept_tokens == 300);
  }
}

TEST_CASE(
    "a budget of the prompt keeps all of it under every policy, and is full where nothing leaves later") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 18, .decode = 9, .output_weights = true});
  std::vector<std::string> policies = test::every_eviction();
  for (const std::string& text : test::every_allocation("snapkv")) policies.push_back(text);
  policies.push_back("full");
  for (const char* budget : {"100%", "18", "20"}) {
    const sim::Request request = test::request_of(policies, {budget});
    const sim::Outcome outcome = test::run(trace, request);
    std::size_t as_full = 0;
    for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
      const policy::Composition& composition = request.cells[i].composition;
      const sim::CellOutcome& cell = outcome.cells[i];
      CAPTURE(composition.params, budget, cell.skipped);
      // A trace without tables, and one that does not know what its tokens are, lack what these read.
      if (!cell.skipped.empty()) {
        CHECK(cell.skipped.find("whatever their score") == std::string::npos);
        continue;
      }
      if (composition.eviction.spec->own_budget() || composition.allocation.own_total()) continue;
      bool appends = true;
      for (const sim::LaneOutcome& lane : cell.lanes) {
        CHECK(lane.kept_tokens == 18);
        appends = appends && lane.held_at_end == 27;
      }
      if (!appends) continue;
      ++as_full;
      for (const sim::LaneOutcome& lane : cell.lanes) CHECK(lane.attention_loss == 0);
    }
    CHECK(as_full > 20);
  }
}

TEST_CASE("parts that change nothing are told, and others are not") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 60, .decode = 9});
  const std::pair<std::string, std::string> cells[] = {
      {"tova+adakv", "adakv gave every lane the same, as if it were not there: tova keeps one set per layer"},
      {"tova(unit=lane)+adakv", ""},
      {"h2o", ""},
      {"full+kivi(group=4)", "kivi changed no number"},  // 69 tokens, of which 128 are exact
      {"full+kivi(group=4,residual=8)", ""},
      {"snapkv(window=4)+quest(read=100)", "quest left nothing out"},
      {"snapkv(window=4)+quest(read=4,page=2,dense=0)", ""},
      {"lagkv(lag=16)", "lagkv kept the first 4 tokens of the prompt and its last ones in every lane"},
      {"lagkv(lag=4)", ""},
      {"streaming_llm", ""},
      {"snapkv(window=4)+compensation", ""},
      {"snapkv(window=4)+fitted_values", ""},
      {"snapkv(window=4)+d2o_merge(gate=fixed,tau=-1)", ""},
  };
  for (const auto& [text, told] : cells) {
    sim::IdleParts idle;
    Progress progress;
    const sim::Outcome outcome =
        sim::replay(trace::Sequence(trace), test::request_of({text}, {"12"}), progress, idle);
    CAPTURE(text, outcome.cells[0].skipped);
    REQUIRE(outcome.cells[0].skipped.empty());
    std::string all;
    for (const std::string& part : idle[0]) all += part;
    CAPTURE(all);
    CHECK(all.empty() == told.empty());
    CHECK(all.find(told) != std::string::npos);
  }
}

TEST_CASE("a budget beyond the sequence makes every policy full") {
  const trace::MemoryTrace trace = structured();
  const sim::Request request = test::request_of(test::every_policy(), {"340"});
  const sim::Outcome outcome = test::run(trace, request);
  for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
    const policy::Composition& composition = request.cells[i].composition;
    if (composition.eviction.spec->own_budget() || composition.allocation.own_total()) continue;
    CAPTURE(composition.params);
    for (const sim::LaneOutcome& lane : outcome.cells[i].lanes) {
      CHECK(lane.attention_loss == 0);
      CHECK(lane.output_error == 0);
    }
  }
}

TEST_CASE("every policy at every budget of interest on odd shapes is replayed or refused, never a bug") {
  using Shape = test::TraceShape;
  for (const Shape& shape : {Shape{.layers = 1, .kv_heads = 1, .group = 1, .prompt = 1, .decode = 3},
                             Shape{.layers = 1, .kv_heads = 1, .group = 8, .prompt = 2, .decode = 1},
                             Shape{.layers = 2, .kv_heads = 3, .group = 1, .prompt = 17, .decode = 20},
                             Shape{.layers = 3, .kv_heads = 2, .group = 2, .prompt = 90, .decode = 40}}) {
    const trace::MemoryTrace trace = test::random_trace(shape);
    std::vector<std::string> budgets;
    for (const std::uint64_t budget :
         {1UL, 2UL, 14UL, 40UL, shape.prompt - 1, shape.prompt, shape.prompt + 1})
      if (budget > 0) budgets.push_back(std::to_string(budget));
    const sim::Request request = test::request_of(test::every_policy(), budgets, 2);
    const sim::Outcome outcome = test::run(trace, request);
    for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
      const policy::Composition& composition = request.cells[i].composition;
      CAPTURE(composition.params, request.cells[i].budget.text, shape.prompt);
      std::uint64_t given = 0;
      for (const sim::LaneOutcome& lane : outcome.cells[i].lanes) {
        CHECK(lane.kept_tokens <= lane.budget_tokens + composition.eviction.overshoot());
        CHECK(lane.steps == shape.decode + 1);                // the last prompt row, too
        given += std::min(lane.budget_tokens, shape.prompt);  // lanes that never evict count as the prompt
      }
      if (outcome.cells[i].skipped.empty() && !composition.eviction.spec->own_budget() &&
          !composition.allocation.inexact())
        CHECK(given ==
              std::min(outcome.cells[i].budget_tokens, shape.prompt) * outcome.cells[i].lanes.size());
    }
  }
}

TEST_CASE("R rises with the budget when budgets are prefixes of one ranking") {
  const trace::MemoryTrace trace = structured();
  const std::vector<std::string> policies = {"window", "streaming_llm",    "l2_norm", "random",
                                             "tova",   "snapkv(window=8)", "xkv"};
  const sim::Outcome outcome =
      test::run(trace, test::request_of(policies, {"5%", "10%", "25%", "50%", "100%"}));
  for (std::size_t p = 0; p < policies.size(); ++p)
    for (std::size_t b = 1; b < 5; ++b) {
      CAPTURE(policies[p], b);
      CHECK(test::r_avg(outcome, b * policies.size() + p) >=
            test::r_avg(outcome, (b - 1) * policies.size() + p));
    }
}

TEST_CASE("xkv's R_avg is at least that of every other allocation that spends no more") {
  const std::string eviction = "snapkv(window=8,pool=avg:7,unit=layer)";
  std::vector<std::string> policies = {eviction + "+xkv", eviction + "+pyramid(beta=4)"};
  for (const std::string& text : test::every_allocation(eviction)) policies.push_back(text);
  const auto spent = [](const sim::Outcome& outcome, std::size_t cell) {
    std::uint64_t sum = 0;
    for (const sim::LaneOutcome& lane : outcome.cells[cell].lanes)
      sum += std::min(lane.budget_tokens, outcome.prompt);
    return sum;
  };
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const trace::MemoryTrace trace = structured(seed);
    const sim::Outcome outcome = test::run(trace, test::request_of(policies, kBudgets, 2));
    std::size_t compared = 0;
    for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
      const std::size_t xkv = i - i % policies.size();
      if (!outcome.cells[i].skipped.empty() || spent(outcome, i) > spent(outcome, xkv)) continue;
      CAPTURE(seed, policies[i % policies.size()], kBudgets[i / policies.size()]);
      CHECK(test::r_avg(outcome, xkv) >= test::r_avg(outcome, i) - 1e-9);
      ++compared;
    }
    CHECK(compared > 20);
  }
}

TEST_CASE("xkv with a target needs as much of the whole prompt as the target does, and retains it") {
  const trace::MemoryTrace trace = structured();
  const std::vector<std::string> policies = {"xkv(r_avg=0.5)", "xkv(r_avg=0.8)", "xkv(r_avg=0.95)"};
  for (const char* budget : {"100%", "340"}) {
    const sim::Outcome outcome = test::run(trace, test::request_of(policies, {budget}));
    double before = 0;
    for (std::size_t i = 0; i < policies.size(); ++i) {
      double kept = 0;
      for (const sim::LaneOutcome& lane : outcome.cells[i].lanes)
        kept += static_cast<double>(lane.kept_tokens);
      CAPTURE(budget, policies[i]);
      CHECK(kept > before);
      CHECK(kept < 300.0 * static_cast<double>(outcome.cells[i].lanes.size()));
      CHECK(test::r_avg(outcome, i) >= std::vector{0.5, 0.8, 0.95}[i] - 1e-9);
      CHECK(test::r_avg(outcome, i) < std::vector{0.5, 0.8, 0.95}[i] + 0.05);
      before = kept;
    }
  }
}

TEST_CASE("snapkv with XKV's window and pooling keeps what the importance oracle keeps") {
  const trace::MemoryTrace trace = structured();
  const sim::Outcome outcome = test::run(trace, test::request_of({"snapkv(window=8,pool=avg:7)"}, kBudgets));
  for (const sim::CellOutcome& cell : outcome.cells)
    for (const sim::LaneOutcome& lane : cell.lanes) {
      CHECK(lane.kept_candidates == lane.kept_tokens - 8);
      CHECK(lane.importance_kept == Approx(lane.importance_oracle));
    }
}

TEST_CASE("random keeps about its share of noise") {
  const trace::MemoryTrace trace =
      test::random_trace({.layers = 4, .kv_heads = 4, .prompt = 400, .decode = 1, .sharpness = 0.3});
  const sim::Outcome outcome = test::run(trace, test::request_of({"random"}, kBudgets));
  CHECK(test::r_avg(outcome, 0) == Approx(0.10).margin(0.03));
  CHECK(test::r_avg(outcome, 1) == Approx(0.25).margin(0.04));
  CHECK(test::r_avg(outcome, 2) == Approx(0.50).margin(0.05));
}

TEST_CASE("outcomes are equal bit by bit at any thread count") {
  const trace::MemoryTrace trace = structured();
  sim::Request request = test::request_of(test::every_policy(), kBudgets);
  std::vector<std::vector<double>> first;
  for (const unsigned threads : {1U, 2U, 8U}) {
    request.threads = threads;
    const sim::Outcome outcome = test::run(trace, request);
    std::vector<std::vector<double>> all;
    for (const sim::CellOutcome& cell : outcome.cells) all.push_back(test::numbers(cell));
    if (first.empty()) first = all;
    CHECK(all == first);
  }
}

TEST_CASE("a cell does not depend on its neighbours") {
  const trace::MemoryTrace trace = structured();
  const sim::Request together = test::request_of(test::every_policy(), kBudgets);
  const sim::Outcome all = test::run(trace, together);
  for (std::size_t i = 0; i < together.cells.size(); ++i) {
    sim::Request alone;
    alone.seed = together.seed;
    alone.cells = {together.cells[i]};
    const sim::Outcome one = test::run(trace, alone);
    CAPTURE(together.cells[i].composition.params);
    for (std::size_t lane = 0; lane < one.cells[0].lanes.size(); ++lane) {
      const sim::LaneOutcome &a = all.cells[i].lanes[lane], &b = one.cells[0].lanes[lane];
      CHECK(test::numbers(a) == test::numbers(b));
    }
  }
}

TEST_CASE("the seed changes random and nothing else") {
  const trace::MemoryTrace trace = structured();
  sim::Request request = test::request_of({"random", "h2o"}, {"25%"});
  const sim::Outcome a = test::run(trace, request);
  request.seed += 1;
  const sim::Outcome b = test::run(trace, request);
  CHECK(test::numbers(a.cells[0]) != test::numbers(b.cells[0]));
  CHECK(test::numbers(a.cells[1]) == test::numbers(b.cells[1]));
}

}  // namespace kvsim::test_replay_laws
