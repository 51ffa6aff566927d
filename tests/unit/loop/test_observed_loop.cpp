// Tests that the closed loop shows a codec the weights of each step over what it has stored.
#include <numeric>

#include "tests/support/observing_codec.hpp"
#include "tests/unit/loop/loop_place.hpp"

namespace kvsim::sim::test_observed_loop {

TEST_CASE("the closed loop shows a codec the softmax over its rows, once per token that it feeds") {
  const std::string variant = "llama_rope_llama3";
  Place place(variant);
  for (const char* eviction : {"h2o", "tova(unit=layer)"}) {
    CAPTURE(eviction);
    test::Observed observed;
    const policy::PolicySpec spec = test::observing_spec(observed, true);
    LoopRequest request = Place::request({std::string(eviction) + "+scalar(bits=16)"}, {"8"});
    request.cells[0].composition.representation = policy::Part{&spec, {}};
    request.modes = {LoopMode::teacher};
    const LoopOutcome outcome = place.run(request, {});
    REQUIRE(outcome.cells[0].skipped.empty());
    // A run that records the tokens that were fed: queries of layer 0 follow from the tokens alone.
    Place whole(variant);
    whole.prompt.ids.insert(whole.prompt.ids.end(), outcome.references[0].tokens.begin(),
                            outcome.references[0].tokens.end() - 1);
    trace::MemoryTrace recorded = whole.read();
    const trace::Model& model = recorded.header().model;
    const std::size_t fed = Place::kNew - 1;
    CHECK(observed.steps.size() == std::size_t{model.n_layers} * model.n_kv_heads * fed);
    for (const auto& [of, step] : observed.steps) {
      const auto [layer, head, position] = of;
      CAPTURE(layer, head, position);
      REQUIRE(step.weights.size() == model.group());
      for (const std::vector<float>& weights : step.weights)
        CHECK(std::accumulate(weights.begin(), weights.end(), 0.0) == Approx(1).margin(1e-5));
      if (layer > 0) continue;
      test::check_observed(step, position, 0, model.attn_scale, [&](std::size_t g) {
        return recorded
            .rows(trace::Tensor::query, 0,
                  static_cast<std::uint32_t>(head) * static_cast<std::uint32_t>(model.group()) +
                      static_cast<std::uint32_t>(g))
            .subspan(static_cast<std::size_t>(position) * model.head_dim, model.head_dim);
      });
    }
  }
}

}  // namespace kvsim::sim::test_observed_loop
