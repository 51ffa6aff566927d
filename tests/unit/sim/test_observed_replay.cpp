// Tests that replay shows a codec the weights of each step over what it has stored.
#include "tests/support/observing_codec.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/study.hpp"

namespace kvsim::test_observed_replay {

namespace {

void replay_observed(const trace::MemoryTrace& trace, const char* eviction, const policy::PolicySpec& spec) {
  sim::Request request = test::request_of({std::string(eviction) + "+scalar(bits=16)"}, {"12"}, 2);
  request.cells[0].composition.representation = policy::Part{&spec, {}};
  const sim::Outcome outcome = test::run(trace, request);
  REQUIRE(outcome.cells[0].skipped.empty());
}

}  // namespace

TEST_CASE("replay shows a codec the softmax over its rows, once per generated token") {
  trace::MemoryTrace trace = test::random_trace({.prompt = 30, .decode = 12, .layer_window = {-1, 9}});
  const std::size_t n_lanes = 4;
  for (const char* eviction : {"full", "h2o", "tova(unit=layer)", "snapkv(window=4)", "h2o(phase=post)"}) {
    CAPTURE(eviction);
    test::Observed observed;
    const policy::PolicySpec spec = test::observing_spec(observed, true);
    replay_observed(trace, eviction, spec);
    CHECK(observed.steps.size() == n_lanes * 12);
    for (const auto& [of, step] : observed.steps) {
      const auto [layer, head, position] = of;
      CAPTURE(layer, head, position);
      REQUIRE(step.weights.size() == 2);
      test::check_observed(step, position, layer == 1 ? 9 : 0, trace.header().model.attn_scale,
                           [&](std::size_t g) {
                             return trace
                                 .rows(trace::Tensor::query, static_cast<std::uint32_t>(layer),
                                       static_cast<std::uint32_t>(2 * head) + static_cast<std::uint32_t>(g))
                                 .subspan(static_cast<std::size_t>(position) * 8, 8);
                           });
    }
  }
}

TEST_CASE("replay shows no weights to a codec that does not ask for them") {
  const trace::MemoryTrace trace = test::random_trace({});
  test::Observed observed;
  const policy::PolicySpec spec = test::observing_spec(observed, false);
  replay_observed(trace, "h2o", spec);
  CHECK(observed.steps.empty());
}

}  // namespace kvsim::test_observed_replay
