// Tests replay against a slow one written from the definitions (tests/support/slow_replay.hpp).
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/plan.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/slow_replay.hpp"
#include "tests/support/study.hpp"
#include "traces/format/source.hpp"

namespace kvsim::test_replay {
namespace {

void compare(const sim::PaidAttention& got, const sim::PaidAttention& expected) {
  CHECK(got.paid == Approx(expected.paid).margin(2e-5));
  CHECK(got.dropped == Approx(expected.dropped).margin(2e-5));
}

/// Returns the sum over the layer's query heads of W o.
std::vector<double> projected(const trace::Sequence& sequence, std::uint32_t layer,
                              const std::vector<test::SlowLane>& lanes, bool held, std::size_t step) {
  const trace::Model& model = sequence.model();
  std::vector<double> out(model.hidden_size);
  std::vector<float> weights(model.v_head_dim * model.hidden_size);
  for (std::uint32_t head = 0; head < model.n_q_heads; ++head) {
    const test::SlowLane& lane = lanes[head / model.group()];
    const std::vector<double>& o = (held ? lane.held : lane.whole)[step][head % model.group()];
    sequence.source().read_output_weights(layer, head, weights);
    for (std::size_t c = 0; c < o.size(); ++c)
      for (std::size_t h = 0; h < out.size(); ++h) out[h] += o[c] * weights[c * model.hidden_size + h];
  }
  return out;
}

void compare_projected(const trace::Sequence& sequence, std::uint32_t layer,
                       const std::vector<test::SlowLane>& lanes, const sim::LayerOutcome& got) {
  double error = 0, cosine = 0;
  for (std::size_t step = 0; step < lanes[0].whole.size(); ++step) {
    const std::vector<double> whole = projected(sequence, layer, lanes, false, step),
                              held = projected(sequence, layer, lanes, true, step);
    error += test::distance(held, whole) / test::norm(whole);
    cosine += test::cosine(held, whole);
  }
  CHECK(got.projected_error == Approx(error).margin(2e-4));
  CHECK(got.projected_cosine == Approx(cosine).margin(2e-4));
}

void compare(const test::TraceShape& shape, const std::vector<std::string>& budgets,
             const std::vector<std::string>& policies = test::every_policy(), const trace::Cut& cut = {}) {
  const trace::MemoryTrace trace = test::random_trace(shape);
  const trace::Sequence sequence(trace, 0, cut);
  sim::Request request = test::request_of(policies, budgets, 2);
  request.each_step = true;
  // With these, every row of so short a prompt has peaks.
  request.peak = sim::parse_peak("threshold=0.3,low=0.1,sinks=1,recent=3");
  Progress progress;
  const sim::Outcome outcome = sim::replay(sequence, request, progress);
  for (std::size_t i = 0; i < request.cells.size(); ++i) {
    const sim::CellOutcome& cell = outcome.cells[i];
    if (!cell.skipped.empty()) continue;
    const policy::Composition& composition = request.cells[i].composition;
    const std::uint32_t n = composition.layer_unit() ? shape.kv_heads : 1;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      std::vector<test::SlowLane> lanes;
      for (std::uint32_t head = 0; head < shape.kv_heads; head += n) {
        const std::size_t first = layer * shape.kv_heads + head;
        const auto expected =
            test::slow_unit(sequence, composition.eviction, layer, head, n, cell.lanes[first].budget_tokens,
                            sim::prompt_seed(sequence, request.seed), request.peak);
        lanes.insert(lanes.end(), expected.begin(), expected.end());
        for (std::size_t lane = 0; lane < n; ++lane) {
          const sim::LaneOutcome& got = cell.lanes[first + lane];
          CAPTURE(composition.params, request.cells[i].budget.text, layer, head, lane);
          CHECK(got.budget_tokens == expected[lane].budget_tokens);
          CHECK(got.kept_tokens == expected[lane].kept_tokens);
          CHECK(got.held_at_end == expected[lane].held_at_end);
          CHECK(got.whole_at_end == expected[lane].whole_at_end);
          CHECK(got.candidates == expected[lane].candidates);
          CHECK(got.kept_candidates == expected[lane].kept_candidates);
          CHECK(got.importance == Approx(expected[lane].importance).margin(1e-6));
          CHECK(got.importance_kept == Approx(expected[lane].importance_kept).margin(1e-6));
          CHECK(got.importance_oracle == Approx(expected[lane].importance_oracle).margin(1e-6));
          CHECK(got.steps == expected[lane].steps);
          CHECK(got.attention_loss == Approx(expected[lane].attention_loss).margin(2e-5));
          CHECK(got.attention_loss_oracle == Approx(expected[lane].attention_loss_oracle).margin(2e-5));
          CHECK(got.oracle_cosine == Approx(expected[lane].oracle_cosine).margin(2e-5));
          CHECK(got.output_error == Approx(expected[lane].output_error).margin(2e-4));
          CHECK(got.output_cosine == Approx(expected[lane].output_cosine).margin(2e-4));
          CHECK(got.kept_of == expected[lane].kept_of);
          CHECK(got.holds_evidence == expected[lane].holds_evidence);
          CHECK(got.evidence_in_sight == expected[lane].evidence_in_sight);
          CHECK(got.holds_prompt == expected[lane].holds_prompt);
          CHECK(got.direction.weight == Approx(expected[lane].direction.weight).epsilon(1e-4).margin(2e-4));
          CHECK(got.direction.error == Approx(expected[lane].direction.error).epsilon(1e-4).margin(2e-4));
          CHECK(got.direction.cosine == Approx(expected[lane].direction.cosine).margin(2e-4));
          compare(got.evidence, expected[lane].evidence);
          compare(got.peak.plain, expected[lane].peak.plain);
          compare(got.peak.weighted, expected[lane].peak.weighted);
          compare(got.peak.low, expected[lane].peak.low);
          for (std::size_t g = 0; g < shape.group; ++g)
            compare(got.peak.heads[g], expected[lane].peak.heads[g]);
          CHECK(got.peak.dropped_times_error == Approx(expected[lane].peak.dropped_times_error).margin(2e-4));
          REQUIRE(got.each_step.size() == expected[lane].each_step.size());
          for (std::size_t step = 0; step < got.each_step.size(); ++step) {
            const sim::StepOutcome &mine = got.each_step[step], &slow = expected[lane].each_step[step];
            CHECK(mine.attention_loss == Approx(slow.attention_loss).margin(1e-5));
            CHECK(mine.attention_loss_oracle == Approx(slow.attention_loss_oracle).margin(1e-5));
            CHECK(mine.held == slow.held);
            compare(mine.evidence, slow.evidence);
          }
        }
      }
      if (shape.output_weights) compare_projected(sequence, layer, lanes, cell.layers[layer]);
    }
  }
}

}  // namespace

TEST_CASE("what is drawn for a prompt follows from the seed and the tokens before the cut") {
  trace::Header header = test::random_trace({}).header();
  const auto seed_of = [&](std::uint64_t seed) {
    const trace::HeaderSource source(header);
    return sim::prompt_seed(trace::Sequence(source), seed);
  };
  const std::size_t prompt = trace::Sequence(trace::HeaderSource(header)).prompt_length();
  const std::uint64_t seed = seed_of(3);
  CHECK(seed_of(4) != seed);
  header.token_id.back() += 1;  // behind the cut
  CHECK(seed_of(3) == seed);
  header.token_id[prompt - 1] += 1;
  CHECK(seed_of(3) != seed);
  std::fill(header.token_id.begin(), header.token_id.end(), -1);  // withheld
  const std::uint64_t withheld = seed_of(3);
  CHECK(withheld != seed);
  CHECK(seed_of(4) != withheld);
}

TEST_CASE("replay agrees with the definitions") {
  compare({}, {"5", "9", "25%", "100%", "28"});
}
TEST_CASE("replay agrees across blocks of prompt rows and of decode steps") {
  compare({.layers = 1, .kv_heads = 1, .group = 2, .prompt = 150, .decode = 70, .seed = 2},
          {"20", "60%", "180"});
}
TEST_CASE("replay agrees for policies that read queries before rotation and output weights") {
  compare({.output_weights = true}, {"9", "50%"},
          {"expected_attention(sinks=2)", "critical_kv(base=snapkv(window=4))",
           "critical_kv(base=snapkv(window=4,unit=layer))", "critical_kv(base=expected_attention(sinks=2))",
           "scissorhands(window=3)", "scissorhands(window=3,prompt=rank)", "cake(window=4)"});
}
TEST_CASE("replay agrees with a sliding window") {
  compare({.layers = 2, .prompt = 40, .decode = 12, .seed = 3, .layer_window = {16, -1}}, {"10", "50%"});
  // Capped logits, as Gemma 2 has them.
  compare({.prompt = 30, .decode = 8, .softcap = 1.5, .layer_window = {12, -1}}, {"9"});
  // Sinks, as gpt-oss has them.
  compare({.prompt = 30, .decode = 8, .sinks = true, .layer_window = {12, -1}, .output_weights = true},
          {"9", "50%"});
}
TEST_CASE("replay agrees where attention is within chunks") {
  // The prompt ends within its fourth chunk, and at the end of its third; what is generated passes borders.
  compare({.layers = 2, .prompt = 40, .decode = 30, .seed = 4, .layer_window = {12, -1}, .chunked = true},
          {"3", "8", "40%", "100%"});
  compare({.layers = 2, .prompt = 36, .decode = 9, .seed = 5, .layer_window = {-1, 12}, .chunked = true},
          {"5", "50%"});
  compare({.layers = 2,
           .prompt = 30,
           .decode = 12,
           .seed = 6,
           .layer_window = {9, -1},
           .chunked = true,
           .output_weights = true},
          {"7"}, test::every_policy(), trace::parse_cut("25"));
}
TEST_CASE(
    "a chunk as long as the run changes no number, and one border refuses what cannot lose all at once") {
  const std::vector<std::string> policies = {"full", "h2o", "snapkv(window=4)",
                                             "full+kivi(bits=2,group=2,residual=4)", "full+quest(read=50%)"};
  const auto replayed = [&](std::vector<std::int32_t> windows, bool chunked) {
    return test::run(
        test::random_trace({.prompt = 40, .decode = 20, .layer_window = windows, .chunked = chunked}),
        test::request_of(policies, {"12"}));
  };
  const sim::Outcome plain = replayed({-1, -1}, false), whole = replayed({60, -1}, true),
                     crossing = replayed({50, -1}, true);
  for (std::size_t cell = 0; cell < policies.size(); ++cell) {
    CAPTURE(policies[cell], plain.cells[cell].skipped);
    REQUIRE(plain.cells[cell].skipped.empty());
    for (std::size_t lane = 0; lane < plain.cells[cell].lanes.size(); ++lane)
      CHECK(plain.cells[cell].lanes[lane].output_error == whole.cells[cell].lanes[lane].output_error);
    if (cell < 3)
      CHECK(crossing.cells[cell].skipped.empty());
    else
      CHECK_THAT(crossing.cells[cell].skipped,
                 Catch::Contains("at position 50") && Catch::Contains("another chunk"));
  }
  CHECK(crossing.cells[0].lanes[0].held_at_end == 10);
  CHECK(crossing.cells[0].lanes[2].held_at_end == 60);
}
TEST_CASE("replay agrees where values are in keys") {
  compare({.kv_heads = 1, .group = 4, .prompt = 30, .decode = 8, .latent = true}, {"9", "50%"});
  compare({.kv_heads = 1, .group = 4, .latent = true, .output_weights = true}, {"9"},
          {"expected_attention(sinks=2)", "critical_kv(base=snapkv(window=4))"});
  // What a token takes is its key; a representation would store the value once more.
  const auto replayed = [](const std::string& policy, bool latent) {
    return test::run(test::random_trace({.kv_heads = 1, .latent = latent}),
                     test::request_of({policy}, {"9"}));
  };
  CHECK(replayed("h2o", true).token_numbers == 8);
  CHECK(replayed("h2o", true).token_bytes == 32);
  CHECK(replayed("h2o", false).token_numbers == 16);
  CHECK_THAT(replayed("h2o+kivi(bits=2,group=2,residual=4)", true).cells[0].skipped,
             Catch::Contains("kivi") && Catch::Contains("latent attention"));
}
TEST_CASE("replay agrees where windows leave prompt and generated tokens behind") {
  compare({.layers = 2, .prompt = 40, .decode = 40, .seed = 4, .layer_window = {16, -1}},
          {"10", "14", "40%"});
  compare({.layers = 2, .prompt = 20, .decode = 9, .seed = 5, .layer_window = {1, 5}}, {"5", "100%", "30"});
  compare(
      {.layers = 2, .prompt = 30, .decode = 12, .seed = 6, .layer_window = {9, -1}, .output_weights = true},
      {"12"}, test::every_policy(), trace::parse_cut("25"));
}
TEST_CASE("a window as long as the run, and a budget of a window, change no number") {
  const auto replayed = [](std::vector<std::int32_t> windows, const std::vector<std::string>& policies,
                           const std::string& budget) {
    return test::run(test::random_trace({.layers = 2, .prompt = 40, .decode = 20, .layer_window = windows}),
                     test::request_of(policies, {budget}));
  };
  const std::vector<std::string> policies = test::every_policy();
  const sim::Outcome plain = replayed({}, policies, "25"), long_windows = replayed({60, 60}, policies, "25");
  const sim::Outcome whole = replayed({16, 16}, policies, "100%");
  for (std::size_t cell = 0; cell < policies.size(); ++cell) {
    CAPTURE(policies[cell]);
    CHECK(plain.cells[cell].skipped == long_windows.cells[cell].skipped);
    for (std::size_t lane = 0; lane < plain.cells[cell].lanes.size(); ++lane) {
      const sim::LaneOutcome &a = plain.cells[cell].lanes[lane], &b = long_windows.cells[cell].lanes[lane];
      CHECK(a.budget_tokens == b.budget_tokens);
      CHECK(a.kept_tokens == b.kept_tokens);
      CHECK(a.held_at_end == b.held_at_end);
      CHECK(a.attention_loss == b.attention_loss);
      CHECK(a.importance_kept == b.importance_kept);
      CHECK(a.output_error == b.output_error);
    }
    const policy::Composition asked = policy::parse_composition(policies[cell], policy::builtin());
    if (asked.eviction.spec->own_budget() || !asked.allocation.spec->even() ||
        policies[cell].find("quirk") != std::string::npos)
      continue;
    for (const sim::LaneOutcome& lane : whole.cells[cell].lanes) {
      CHECK(lane.kept_tokens == 16);
      CHECK(lane.held_at_end == 16);
      CHECK(lane.attention_loss == 0);
      CHECK(lane.output_error == 0);
    }
  }
}
TEST_CASE("oracles and bounds hold in window layers, and no policy loses less than they") {
  const trace::MemoryTrace trace =
      test::random_trace({.layers = 2, .prompt = 40, .decode = 30, .seed = 8, .layer_window = {12, -1}});
  std::vector<std::string> policies = {"optimal",     "optimal+best_split",           "future_mass",
                                       "future_mean", "future_mean(generated=evict)", "future_max_logit"};
  constexpr double kRounding = 2e-6;  // as that of the laws of bounds
  const std::size_t n_oracles = policies.size();
  for (const char* policy :
       {"h2o", "tova(unit=lane)", "keydiff", "window", "l2_norm", "random", "h2o+pyramid"})
    policies.push_back(policy);
  for (const char* budget : {"6", "30%", "20"}) {
    sim::Request request = test::request_of(policies, {budget});
    request.bounds = true;
    const sim::Outcome outcome = test::run(trace, request);
    const auto loss = [&](std::size_t cell, std::size_t lane) {
      return outcome.cells[cell].lanes[lane].attention_loss;
    };
    for (std::size_t cell = 0; cell < policies.size(); ++cell) {
      CAPTURE(policies[cell], budget, outcome.cells[cell].skipped);
      REQUIRE(outcome.cells[cell].skipped.empty());
      double mean = 0;
      for (std::size_t lane = 0; lane < 4; ++lane) {
        mean += loss(cell, lane) / 4 / static_cast<double>(outcome.measured_steps());
        if (lane < 2) CHECK(outcome.cells[cell].lanes[lane].held_at_end <= 12);
        if (outcome.cells[cell].holding != policy::Holding::managed) continue;
        if (cell >= n_oracles &&
            outcome.cells[cell].lanes[lane].budget_tokens == outcome.cells[0].lanes[lane].budget_tokens)
          CHECK(loss(0, lane) <= loss(cell, lane) + kRounding);
      }
      REQUIRE(outcome.cells[cell].attention_loss_bound);
      CHECK(*outcome.cells[cell].attention_loss_bound <= mean + kRounding);
      if (cell == 1) CHECK(*outcome.cells[cell].attention_loss_bound == Approx(mean).margin(kRounding));
    }
  }
}
TEST_CASE("replay agrees for one head, one layer, multi-query and no decode") {
  compare({.layers = 1, .kv_heads = 1, .group = 1, .prompt = 12, .decode = 5}, {"6"});
  compare({.layers = 1, .kv_heads = 1, .group = 8, .prompt = 20, .decode = 4}, {"6"});
  compare({.layers = 3, .kv_heads = 3, .group = 1, .prompt = 20, .decode = 0}, {"6"});
}
TEST_CASE("replay agrees at every cut, and about evidence") {
  const test::TraceShape shape{
      .prompt = 30, .decode = 6, .seed = 5, .output_weights = true, .context = 20, .evidence = {3, 4, 17}};
  for (const char* cut : {"prompt", "question", "9", "30", "35"}) {
    CAPTURE(cut);
    compare(shape, {"5", "50%"}, test::every_policy(), trace::parse_cut(cut));
  }
}
TEST_CASE("replay agrees for prompts shorter than windows or of one token, and for larger budgets") {
  compare({.prompt = 1, .decode = 3}, {"1", "5"});
  compare({.prompt = 3, .decode = 6}, {"5", "100"});
  compare({.prompt = 8, .decode = 2}, {"6"});
}

TEST_CASE("the values that leave and those that stay, by hand") {
  trace::MemoryTrace trace =
      test::random_trace({.layers = 1, .kv_heads = 1, .group = 1, .prompt = 4, .decode = 1});
  std::ranges::fill(trace.rows(trace::Tensor::key, 0, 0), 0.0F);  // every key gets as much attention
  const std::span<float> values = trace.rows(trace::Tensor::value, 0, 0);
  std::ranges::fill(values, 0.0F);
  const std::size_t dim = values.size() / 5;
  for (std::size_t t = 0; t < 5; ++t) values[t * dim + (t < 3 ? 0 : 1)] = 3;
  const sim::Outcome outcome = test::run(trace, test::request_of({"window", "full"}, {"2"}));
  // The last prompt token has dropped 0 and 1: of o = (9/4, 3/4) half is of v_E = (3, 0), half of
  // v_K = (3/2, 3/2). The next has dropped 2, too: o = (9/5, 6/5), v_E = (3, 0), v_K = (0, 3).
  const sim::LaneOutcome &window = outcome.cells[0].lanes[0], &full = outcome.cells[1].lanes[0];
  CHECK(window.direction.weight == 2);
  CHECK(window.direction.error == Approx(std::sqrt(4.5 / 5.625) + std::sqrt(18 / 4.68)));
  CHECK(window.direction.cosine == Approx(std::sqrt(0.5)));
  CHECK(window.holds_prompt == std::vector<std::uint64_t>{8});  // token 3 alone
  CHECK(full.direction.weight == 0);
  CHECK(full.holds_prompt == std::vector<std::uint64_t>{15});
}

TEST_CASE("importance is measured with the rows and the pooling of the request") {
  const trace::MemoryTrace trace = test::random_trace({.layers = 1, .prompt = 30, .decode = 2});
  const trace::Sequence sequence(trace);
  const std::vector<test::Rows> heads = {test::attention(sequence, 0, 2), test::attention(sequence, 0, 3)};
  const std::tuple<const char*, std::size_t, std::ptrdiff_t> rules[] = {
      {"", 8, 3}, {"rows=4,pool=none", 4, 0}, {"rows=12,pool=avg:5", 12, 2}};
  for (const auto& [text, rows, reach] : rules) {
    sim::Request request = test::request_of({"window"}, {"20"});
    request.importance = sim::parse_importance(text);
    const sim::LaneOutcome lane = test::run(trace, request).cells[0].lanes[1];
    const std::vector<double> w = test::slow_importance(heads, 30, 0, rows, reach);
    CAPTURE(text);
    CHECK(lane.candidates == w.size());
    CHECK(lane.importance == Approx(std::accumulate(w.begin(), w.end(), 0.0)));
    CHECK(lane.importance_kept == Approx(std::accumulate(w.begin() + 10, w.end(), 0.0)));  // of 10 .. 29
  }
}

TEST_CASE("decisions add up to the resident tokens of every step") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 20, .decode = 40});
  sim::Request request = test::request_of({"h2o", "tova", "snapkv(window=4)"}, {"8"});
  request.decisions = true;
  const sim::Outcome outcome = test::run(trace, request);
  CHECK(outcome.measured_steps() == 41);
  for (const sim::CellOutcome& cell : outcome.cells) {
    REQUIRE(cell.resident_intervals.size() == cell.lanes.size());
    for (std::size_t lane = 0; lane < cell.lanes.size(); ++lane) {
      std::vector<std::size_t> held(41, 0);
      for (const sim::ResidentInterval& stay : cell.resident_intervals[lane]) {
        CHECK(stay.first < stay.last);
        CHECK(stay.first == (stay.position < 20 ? 0U : static_cast<std::uint32_t>(stay.position - 19)));
        for (std::uint32_t step = stay.first; step < stay.last; ++step) held[step] += 1;
      }
      CHECK(held[0] == cell.lanes[lane].kept_tokens);
      CHECK(held[40] == cell.lanes[lane].held_at_end);
      const bool appends = &cell == &outcome.cells[2];
      for (std::size_t step = 1; step <= 40; ++step) CHECK(held[step] == (appends ? 8 + step : 8));
    }
  }
}

TEST_CASE("cells that cannot differ run once, and each gives what it gives alone") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 20, .decode = 12});
  sim::Request request =
      test::request_of({"full", "full+top_tokens(read=4)", "h2o"}, {"6", "9", "9", "150%"});
  request.decisions = true;
  const trace::Sequence sequence(trace);
  sim::Plan plan = sim::outline(sequence, request);
  sim::AllocationPass nothing_measured(sequence, request, plan);
  sim::split_budgets(sequence, request, nothing_measured, plan, sequence.length());
  sim::run_once(request, sequence.prompt_length(), plan);
  constexpr std::size_t kNone = sim::Plan::kNone;
  std::vector<std::size_t> same;
  for (const sim::Plan::CellPlan& cell : plan.cells) same.push_back(cell.same_as);
  // Three policies at each budget. The last lets full lanes hold what is generated within the budget.
  CHECK(same == std::vector<std::size_t>{kNone, kNone, kNone, 0, 1, kNone, 0, 1, 5, kNone, kNone, kNone});
  const sim::Outcome together = test::run(trace, request);
  for (std::size_t cell = 0; cell < request.cells.size(); ++cell) {
    sim::Request one = request;
    one.cells = {request.cells[cell]};
    const sim::CellOutcome alone = test::run(trace, one).cells[0];
    CHECK(test::numbers(together.cells[cell]) == test::numbers(alone));
    CHECK(together.cells[cell].budget_tokens == alone.budget_tokens);
    CHECK(together.cells[cell].holding == alone.holding);
    CHECK(together.cells[cell].resident_intervals.size() == alone.resident_intervals.size());
    for (std::size_t lane = 0; lane < alone.lanes.size(); ++lane)
      CHECK(together.cells[cell].lanes[lane].appends == alone.lanes[lane].appends);
  }
}

TEST_CASE("steps are recorded on request, and count in the memory estimate") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 20, .decode = 40});
  sim::Request request = test::request_of({"h2o", "full"}, {"8"});
  const std::uint64_t without = sim::estimate_bytes(trace::Sequence(trace), request);
  CHECK(test::run(trace, request).cells[0].lanes[3].each_step.empty());
  request.each_step = true;
  // Two cells, four lanes, forty tokens and the last prompt row; eight doubles and three counts each.
  CHECK(sim::estimate_bytes(trace::Sequence(trace), request) == without + 2 * 4 * 41 * 88);
  CHECK(test::run(trace, request).cells[0].lanes[3].each_step.size() == 41);
}

TEST_CASE("cells that cannot run are skipped with the reason, and only an empty study fails") {
  const trace::MemoryTrace trace = test::random_trace({});
  const sim::Outcome outcome = test::run(trace, test::request_of({"snapkv(window=12)", "window"}, {"6"}));
  CHECK_THAT(outcome.cells[0].skipped, Catch::Contains("snapkv") && Catch::Contains("6"));
  CHECK(outcome.cells[0].lanes.empty());
  CHECK(outcome.cells[1].skipped.empty());
  CHECK_FALSE(test::run(trace, test::request_of({"snapkv(window=12)"}, {"6"})).cells[0].skipped.empty());
  CHECK_THROWS_WITH(test::run(trace, {}), Catch::Contains("no cell"));
}

TEST_CASE("a trace without early queries serves the policies that need none") {
  trace::MemoryTrace full = test::random_trace({.layers = 1, .kv_heads = 1, .prompt = 24, .decode = 4});
  trace::Header header = full.header();
  for (std::uint64_t token = 14; token < 28; ++token)
    header.query_token.push_back(token);  // the last 10 of the prompt
  trace::MemoryTrace part(header);
  for (const auto tensor : {trace::Tensor::key, trace::Tensor::value}) {
    const auto from = full.rows(tensor, 0, 0);
    std::copy(from.begin(), from.end(), part.rows(tensor, 0, 0).begin());
  }
  for (std::uint32_t head = 0; head < 2; ++head) {
    const auto from = full.rows(trace::Tensor::query, 0, head).subspan(14 * 8);
    std::copy(from.begin(), from.end(), part.rows(trace::Tensor::query, 0, head).begin());
  }
  const sim::Request request = test::request_of({"window", "tova", "snapkv(window=10)", "xkv"}, {"12"});
  const sim::Outcome a = test::run(full, request), b = test::run(part, request);
  for (std::size_t i = 0; i < request.cells.size(); ++i)
    CHECK(test::numbers(a.cells[i]) == test::numbers(b.cells[i]));
  const sim::Outcome lacking = test::run(part, test::request_of({"h2o", "window"}, {"12"}));
  CHECK_THAT(lacking.cells[0].skipped, Catch::Contains("h2o") && Catch::Contains("--queries all"));
  CHECK(lacking.cells[1].skipped.empty());
}

TEST_CASE("a value in a trace that is not a number is named, not averaged") {
  const std::tuple<trace::Tensor, std::string, float> cases[] = {
      {trace::Tensor::query, "query of layer 1, head 3, position 17 is nan", std::nanf("")},
      {trace::Tensor::key, "key of layer 1, head 1, position 17 is inf", INFINITY},
      {trace::Tensor::value, "value of layer 1, head 1, position 17 is -inf", -INFINITY}};
  for (const auto& [tensor, message, bad] : cases) {
    trace::MemoryTrace trace = test::random_trace({});
    trace.rows(tensor, 1, tensor == trace::Tensor::query ? 3 : 1)[17 * 8 + 5] = bad;
    for (const char* policy : {"xkv", "h2o"})
      CHECK_THROWS_WITH(test::run(trace, test::request_of({policy}, {"12"})), Catch::Contains(message));
  }
}

TEST_CASE("a replay stops on request") {
  const trace::MemoryTrace trace = test::random_trace({});
  Progress progress;
  progress.stop = true;
  try {
    sim::replay(trace::Sequence(trace), test::request_of({"h2o"}, {"6"}), progress);
    FAIL("not stopped");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::interrupted);
  }
}

TEST_CASE("progress ends at its total") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 100, .decode = 50});
  for (const char* policy : {"window", "h2o", "tova"}) {
    Progress progress;
    sim::replay(trace::Sequence(trace), test::request_of({policy}, {"6"}), progress);
    CHECK(progress.done == progress.total);
    CHECK(progress.total > 0);
  }
}

}  // namespace kvsim::test_replay
