// Tests runs of a prompt and an answer in memory: run_prompt.
#include "tests/unit/loop/loop_place.hpp"

namespace kvsim::sim::test_prompt_run {

TEST_CASE("a prompt that is known is not processed again, and an answer to it has the same bits") {
  for (const std::string& variant : model::golden_variants()) {
    CAPTURE(variant);
    Place place(variant);
    const auto run = [&](std::vector<std::int32_t> answer, const trace::MemoryTrace* known) {
      Progress progress;
      trace::MemoryTrace trace = capture::run_prompt(place.prompt, place.golden.config, place.golden.weights,
                                                     {.model_dir = "golden",
                                                      .positions = place.prompt.ids.size() + 4,
                                                      .prefill_chunk = 16,
                                                      .threads = 1,
                                                      .answer = answer,
                                                      .known = known},
                                                     progress);
      CHECK(progress.done == place.prompt.ids.size() + answer.size());
      return trace;
    };
    trace::MemoryTrace known = run({7}, nullptr);
    trace::MemoryTrace again = run({5, 3, 9}, &known), whole = run({5, 3, 9}, nullptr);
    const trace::Model& model = whole.header().model;
    for (const trace::Tensor tensor : {trace::Tensor::query, trace::Tensor::key, trace::Tensor::value}) {
      if (tensor == trace::Tensor::value && model.values_in_keys) continue;
      for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
        for (std::uint32_t head = 0;
             head < (tensor == trace::Tensor::query ? model.n_q_heads : model.n_kv_heads); ++head) {
          const std::span<float> a = again.rows(tensor, layer, head), b = whole.rows(tensor, layer, head);
          REQUIRE(std::vector<float>(a.begin(), a.end()) == std::vector<float>(b.begin(), b.end()));
        }
    }
    // What is known is taken as it is.
    known.rows(trace::Tensor::query, 0, 0)[0] = 1234;
    CHECK(run({}, &known).rows(trace::Tensor::query, 0, 0)[0] == 1234);
  }
}

}  // namespace kvsim::sim::test_prompt_run
