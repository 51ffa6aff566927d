// Tests the closed loop of cells whose queries read a part of what is stored.
#include <array>

#include "tests/unit/loop/loop_place.hpp"

namespace kvsim::sim::test_selected_loop {
namespace {

using Intervals = std::vector<std::array<std::int64_t, 3>>;

Intervals flat(const std::vector<ResidentInterval>& intervals) {
  Intervals out;
  for (const ResidentInterval& interval : intervals)
    out.push_back({interval.position, interval.first, interval.last});
  return out;
}

}  // namespace

TEST_CASE("in the loop a selection of everything equals the reference in every bit") {
  for (const char* variant : {"llama_rope_llama3", "qwen2_mixed_windows"}) {
    Place place(variant);
    for (const trace::Cut& cut : {trace::Cut{}, trace::Cut{trace::Cut::At::position, 9}}) {
      const LoopOutcome outcome = place.run(
          {"full+quest(read=100%)", "full+top_tokens(read=100%)", "full+quest(read=2,page=2)"}, {"100"}, cut);
      for (const std::size_t cell : {0U, 1U})
        for (std::size_t mode = 0; mode < 2; ++mode) {
          CHECK(outcome.cells[cell].modes[mode].tokens == outcome.references[mode].tokens);
          for (const TokenMeasures& at : outcome.cells[cell].modes[mode].measures) CHECK(at.kl == 0);
          const StreamOutcome& stream = outcome.cells[cell].modes[mode];
          REQUIRE(stream.reads.size() == stream.resident.size());
          for (std::size_t fed = 0; fed < stream.reads.size(); ++fed)
            CHECK(stream.reads[fed].loaded_tokens == stream.resident[fed]);
        }
    }
  }
}

TEST_CASE("what a selection reads is what replay reads in layer 0, as the tokens that stay show") {
  // h2o and tova evict by the attention that they see, which is 0 where a query does not read.
  for (const char* variant : {"llama_rope_llama3", "qwen2_mixed_windows"}) {
    Place place(variant);
    const trace::Cut at{trace::Cut::At::position, 9};
    LoopRequest request =
        place.request({"h2o+top_tokens(read=3)", "tova+quest(read=4,page=2,dense=0)",
                       "tova+infllm(read=2,block=2,representatives=1,sinks=1,local=1)",
                       "tova(unit=lane)+kivi(bits=4,group=4,residual=4)+quest(read=4,page=2,dense=0)"},
                      {"6", "8"});
    request.modes = {LoopMode::teacher};
    request.decisions = true;
    const LoopOutcome loop = place.run(request, at);
    const Outcome replayed = place.replayed(variant, request, loop, at);
    for (std::size_t cell = 0; cell < request.cells.size(); ++cell) {
      CAPTURE(variant, request.cells[cell].composition.params);
      REQUIRE(loop.cells[cell].skipped.empty());
      for (std::size_t lane = 0; lane < place.golden.config.n_kv_heads; ++lane)
        CHECK(flat(loop.cells[cell].modes[0].resident_intervals[lane]) ==
              flat(replayed.cells[cell].resident_intervals[lane]));
    }
  }
}

TEST_CASE("in the loop a cell that reads a part depends neither on the others nor on threads") {
  Place place("llama_rope_llama3");
  const std::vector<std::string> policies{"full+quest(read=4,page=2,dense=0)", "h2o+top_tokens(read=3)",
                                          "full+tidal(read=4,dense=0,correction=0)", "full"};
  const trace::Cut cut{trace::Cut::At::position, 12};
  const LoopOutcome all = place.run(policies, {"8", "100"}, cut, 3);
  for (std::size_t cell = 0; cell < all.cells.size(); ++cell) {
    CAPTURE(policies[cell / 2]);
    const LoopOutcome alone = place.run({policies[cell / 2]}, {cell % 2 == 0 ? "8" : "100"}, cut);
    for (std::size_t mode = 0; mode < 2; ++mode)
      CHECK(same(alone.cells[0].modes[mode], all.cells[cell].modes[mode]));
  }
}

TEST_CASE("selections that a running model cannot serve are named with the reason") {
  Place place("llama_rope_llama3");
  LoopRequest request = place.request({"full+quest", "h2o(prompt=stream)+quest", "full"}, {"8"});
  request.positions = LoopPositions::cache_step;
  const LoopOutcome moved = place.run(request, {});
  CHECK_THAT(moved.cells[0].skipped, Catch::Contains("--positions text runs it"));
  CHECK_THAT(moved.cells[1].skipped, !Catch::Matches(""));
}

}  // namespace kvsim::sim::test_selected_loop
