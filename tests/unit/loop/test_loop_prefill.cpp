// Laws of prompts that cells process themselves: token by token, and in chunks.
#include "sim/base/error.hpp"
#include "tests/unit/loop/loop_place.hpp"

namespace kvsim::sim::test_loop_prefill {
namespace {

const std::vector<trace::Cut> kCuts = {{}, {trace::Cut::At::position, 16}};
const std::vector<std::string> kStreaming = {"h2o(prompt=stream)", "tova", "hashevict(sinks=2,window=2)",
                                             "scissorhands(history=2,window=2)"};

std::vector<std::int32_t> after_cut(const std::vector<ResidentInterval>& intervals) {
  std::vector<std::int32_t> out;
  for (const ResidentInterval& interval : intervals)
    if (interval.first == 0) out.push_back(interval.position);
  return out;
}

LoopOutcome chunked(Place& place, const std::vector<std::string>& policies,
                    const std::vector<std::string>& budgets, std::uint64_t tokens, const trace::Cut& cut,
                    unsigned threads = 1) {
  LoopRequest request = Place::request(policies, budgets);
  request.prefill_tokens = tokens;
  request.threads = threads;
  request.decisions = true;
  return place.run(request, cut);
}

void check_same(const LoopCell& a, const LoopCell& b) {
  CHECK(a.skipped == b.skipped);
  REQUIRE(a.modes.size() == b.modes.size());
  for (std::size_t mode = 0; mode < a.modes.size(); ++mode) CHECK(same(a.modes[mode], b.modes[mode]));
}

}  // namespace

TEST_CASE("a cell that processes the prompt itself and evicts nothing equals its reference in every bit") {
  for (const char* variant : {"llama_rope_llama3", "qwen3_qk_norm"}) {
    Place place(variant);
    for (const trace::Cut& cut : kCuts)
      for (const std::uint64_t tokens : {0, 7}) {
        LoopRequest request = Place::request({"h2o(prompt=stream)", "full", "snapkv(window=4)"}, {"100"});
        request.prefill_tokens = tokens;
        const LoopOutcome outcome = place.run(request, cut);
        CHECK(outcome.references.size() == (tokens == 0 ? 4 : 2));
        for (const LoopCell& cell : outcome.cells) {
          REQUIRE(cell.skipped.empty());
          for (std::size_t mode = 0; mode < 2; ++mode) {
            CHECK(cell.modes[mode].tokens == outcome.references[cell.first_reference + mode].tokens);
            for (const TokenMeasures& at : cell.modes[mode].measures) CHECK(at.kl == 0);
          }
        }
      }
  }
}

TEST_CASE("policies that stream the prompt hold in layer 0 what replay holds at every step") {
  for (const char* variant : {"llama_rope_llama3", "mistral_window"}) {
    Place place(variant);
    const trace::Cut at{trace::Cut::At::position, 16};
    LoopRequest request = Place::request(kStreaming, {"8", "12"});
    request.modes = {LoopMode::teacher};
    request.decisions = true;
    const LoopOutcome loop = place.run(request, at);
    const Outcome replayed = place.replayed(variant, request, loop, at);
    std::size_t streamed = 0;
    for (std::size_t cell = 0; cell < request.cells.size(); ++cell) {
      CAPTURE(variant, request.cells[cell].composition.params, request.cells[cell].budget.text);
      REQUIRE(loop.cells[cell].skipped == replayed.cells[cell].skipped);
      if (!loop.cells[cell].skipped.empty()) continue;
      streamed += loop.cells[cell].prefill == Prefill::stream ? 1 : 0;
      for (std::size_t lane = 0; lane < place.golden.config.n_kv_heads; ++lane) {
        const auto& mine = loop.cells[cell].modes[0].resident_intervals[lane];
        const auto& theirs = replayed.cells[cell].resident_intervals[lane];
        REQUIRE(mine.size() == theirs.size());
        for (std::size_t i = 0; i < mine.size(); ++i) {
          CHECK(mine[i].position == theirs[i].position);
          CHECK(mine[i].first == theirs[i].first);
          CHECK(mine[i].last == theirs[i].last);
        }
      }
    }
    CHECK(streamed >= 4);
  }
}

TEST_CASE("one chunk as long as the prompt is a dense prefill") {
  Place place("llama_rope_llama3");
  const std::vector<std::string> policies = {"h2o", "snapkv(window=4)", "keydiff", "streaming_llm",
                                             "tova(prompt=rank)"};
  for (const trace::Cut& cut : kCuts) {
    const LoopOutcome whole = chunked(place, policies, {"8"}, 1000, cut);
    const LoopOutcome dense = chunked(place, policies, {"8"}, 0, cut);
    for (std::size_t cell = 0; cell < policies.size(); ++cell) {
      CAPTURE(policies[cell]);
      REQUIRE(whole.cells[cell].skipped.empty());
      CHECK(whole.cells[cell].prefill == Prefill::chunked);
      CHECK(dense.cells[cell].prefill == Prefill::dense);
      const StreamOutcome &a = whole.cells[cell].modes[0], &b = dense.cells[cell].modes[0];
      REQUIRE(a.resident_intervals.size() == b.resident_intervals.size());
      for (std::size_t lane = 0; lane < a.resident_intervals.size(); ++lane)
        CHECK(after_cut(a.resident_intervals[lane]) == after_cut(b.resident_intervals[lane]));
      for (std::size_t k = 0; k < a.measures.size(); ++k)
        CHECK(a.measures[k].log_p == Approx(b.measures[k].log_p).margin(1e-3));
    }
  }
}

TEST_CASE("what is kept of chunks, where that is known") {
  Place place("llama_rope_llama3");
  const trace::Cut cut{trace::Cut::At::position, 16};
  // Sinks and the newest tokens stay what they are. The smallest norms of what is left and a chunk are those
  // of all tokens, where the keys are those of the tokens alone: in layer 0.
  const LoopOutcome whole = chunked(place, {"streaming_llm(sinks=2)", "l2_norm"}, {"6"}, 0, cut);
  for (const std::uint64_t tokens : {1, 5, 8}) {
    const LoopOutcome parts = chunked(place, {"streaming_llm(sinks=2)", "l2_norm"}, {"6"}, tokens, cut);
    for (std::size_t cell = 0; cell < 2; ++cell) {
      REQUIRE(parts.cells[cell].skipped.empty());
      CHECK(parts.cells[cell].kept_tokens == 6);
      const std::size_t lanes = cell == 0 ? place.golden.config.n_kv_heads * place.golden.config.n_layers
                                          : place.golden.config.n_kv_heads;
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        CAPTURE(tokens, cell, lane);
        CHECK(after_cut(parts.cells[cell].modes[0].resident_intervals[lane]) ==
              after_cut(whole.cells[cell].modes[0].resident_intervals[lane]));
      }
    }
  }
}

TEST_CASE("a lane holds its budget and one chunk at most while the prompt comes, and says so") {
  Place place("llama_rope_llama3");
  const trace::Cut cut{trace::Cut::At::position, 22};
  const std::vector<std::string> policies = {"snapkv(window=2)+pyramid", "h2o", "tova"};
  for (const std::uint64_t tokens : {1, 4, 5}) {
    const LoopOutcome outcome = chunked(place, policies, {"6"}, tokens, cut);
    for (const LoopCell& cell : outcome.cells) {
      REQUIRE(cell.skipped.empty());
      REQUIRE(cell.chunk_peaks.size() == cell.modes[0].resident_intervals.size());
      for (std::size_t lane = 0; lane < cell.chunk_peaks.size(); ++lane)
        CHECK(cell.chunk_peaks[lane] == after_cut(cell.modes[0].resident_intervals[lane]).size() + tokens);
    }
  }
  for (const LoopCell& cell : chunked(place, policies, {"6"}, 0, cut).cells) CHECK(cell.chunk_peaks.empty());
}

TEST_CASE("cells that process the prompt themselves depend neither on the others nor on threads") {
  Place place("llama_rope_llama3");
  const std::vector<std::string> policies = {"h2o(prompt=stream)", "snapkv(window=4)", "keydiff", "full"};
  for (const trace::Cut& cut : kCuts) {
    const LoopOutcome together = chunked(place, policies, {"8"}, 5, cut);
    const LoopOutcome threads = chunked(place, policies, {"8"}, 5, cut, 8);
    for (std::size_t cell = 0; cell < policies.size(); ++cell) {
      CAPTURE(policies[cell]);
      check_same(together.cells[cell], threads.cells[cell]);
      check_same(together.cells[cell], chunked(place, {policies[cell]}, {"8"}, 5, cut).cells[0]);
    }
  }
}

TEST_CASE(
    "an allocation that measures the prompt is refused where the cell processes it, but for a dense pass") {
  Place place("llama_rope_llama3");
  using Catch::Contains;
  LoopRequest request =
      Place::request({"h2o(prompt=stream)+cake_layers", "h2o+cake_layers", "h2o+pyramid"}, {"10"});
  LoopOutcome outcome = place.run(request, {});
  CHECK_THAT(outcome.cells[0].skipped, Contains("--profile dense"));
  CHECK(outcome.cells[1].skipped.empty());
  CHECK_FALSE(outcome.cells[1].profiled);
  request.prefill_tokens = 8;
  outcome = place.run(request, {});
  CHECK_THAT(outcome.cells[1].skipped, Contains("--profile dense"));
  CHECK(outcome.cells[2].skipped.empty());
  request.profile_dense = true;
  outcome = place.run(request, {});
  for (const LoopCell& cell : outcome.cells) CHECK(cell.skipped.empty());
  CHECK(outcome.cells[1].profiled);
  CHECK_FALSE(outcome.cells[2].profiled);
}

TEST_CASE("what cannot be ranked in chunks is named with the reason") {
  Place place("llama_rope_llama3");
  using Catch::Contains;
  CHECK_THAT(chunked(place, {"expected_attention", "h2o"}, {"10"}, 8, {}).cells[0].skipped,
             Contains("rotation"));
  Place window("mistral_window");
  CHECK_THROWS_WITH(chunked(window, {"h2o"}, {"10"}, 8, {}), Contains("sliding window"));
}

}  // namespace kvsim::sim::test_loop_prefill
