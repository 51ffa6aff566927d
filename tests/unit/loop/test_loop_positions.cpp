// Rotary positions counted in the cache.
#include <cmath>

#include "sim/loop/key_shifts.hpp"
#include "tests/unit/loop/loop_place.hpp"

namespace kvsim::sim::test_loop_positions {
namespace {

/// The log-likelihoods of a dense run over tokens that are fed from `first` on.
std::vector<double> dense_log_p(const model::GoldenCheckpoint& golden, const model::ModelConfig& config,
                                std::vector<std::int32_t> text, std::size_t first) {
  std::vector<double> out;
  for (std::size_t n = first; n < text.size(); ++n) {
    capture::Prompt prompt;
    prompt.ids.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n));
    Progress progress;
    const trace::MemoryTrace trace = capture::run_prompt(
        prompt, config, golden.weights, {.model_dir = "golden", .positions = n + 8, .threads = 1}, progress);
    LoopRequest request = Place::request({"full"}, {"100"});
    request.modes = {LoopMode::teacher};
    request.turns.front().answer = {text[n]};
    const trace::Sequence sequence(trace, 0, {});
    out.push_back(closed_loop(sequence, prompt.ids, config, golden.weights, request, progress)
                      .front()
                      .cells[0]
                      .modes[0]
                      .measures[0]
                      .log_p);
  }
  return out;
}

}  // namespace

TEST_CASE("how far keys move, worked by hand") {
  // The query is at 9; 3, 4, 6 and 8 are gone.
  const policy::Position attended[] = {0, 7, 5, 1, 2, 9};
  std::vector<std::uint32_t> shifts;
  dropped_between(attended, shifts);
  CHECK(shifts == std::vector<std::uint32_t>{4, 1, 2, 4, 4, 0});
  const policy::Position kept[] = {0, 4, 1};
  CHECK(dropped_before(kept, 6) == std::vector<std::uint32_t>{3, 3, 2, 1, 1, 0});
}

TEST_CASE("rotating a key by whole positions is rotating the key before RoPE to the new position") {
  const std::vector<float> frequencies = {1.0F, 0.25F, 0.01F};
  for (const RotaryLayout layout : {RotaryLayout::half_split, RotaryLayout::interleaved}) {
    const Rotary rotary{frequencies, layout, 1.25};
    const KeyRotation turn(rotary, 40);
    std::vector<float> key = {0.3F, -1, 0.7F, 2, 0.1F, -0.4F, 5, 6};  // the last two do not rotate
    std::vector<float> at_20 = key, at_31 = key;
    rotate(rotary, 20, 8, at_20);
    rotate(rotary, 31, 8, at_31);
    std::vector<float> turned(8);
    turn.rotate(at_20, 11, turned.data());
    for (std::size_t i = 0; i < 8; ++i) CHECK(turned[i] == Approx(at_31[i]).margin(2e-6));
  }
}

TEST_CASE("learned positions are those of the text") {
  Place place("opt_learned_positions");
  LoopRequest request = Place::request({"window"}, {"8"});
  CHECK_NOTHROW(place.run(request, {}));
  request.positions = LoopPositions::cache_step;
  CHECK_THROWS_WITH(place.run(request, {}), Catch::Matchers::Contains("learned its positions"));
}

TEST_CASE("with nothing dropped all positions are the same") {
  Place place("llama_rope_llama3");
  for (const trace::Cut& cut : {trace::Cut{}, trace::Cut{trace::Cut::At::position, 12}}) {
    const LoopOutcome text = place.run({"h2o", "h2o(prompt=stream)"}, {"100"}, cut);
    for (const LoopPositions positions : {LoopPositions::cache_step, LoopPositions::cache_once}) {
      LoopRequest request = Place::request({"h2o", "h2o(prompt=stream)"}, {"100"});
      request.positions = positions;
      const LoopOutcome cache = place.run(request, cut);
      for (std::size_t cell = 0; cell < 2; ++cell)
        for (std::size_t mode = 0; mode < 2; ++mode)
          CHECK(same(text.cells[cell].modes[mode], cache.cells[cell].modes[mode]));
    }
  }
}

TEST_CASE("in a model of one layer, what is left of the text is a shorter text") {
  // Keys and values of a first layer are those of the tokens alone, so that with positions counted in the
  // cache a text with a gap is the text without it.
  for (const char* variant : {"llama_rope_llama3", "phi3_partial_rotary", "llama_rope_yarn"}) {
    Place place(variant);
    model::ModelConfig config = place.golden.config;
    config.n_layers = 1;
    config.layer_window.assign(1, -1);
    const std::vector<std::int32_t> text = place.golden.tokens();
    Progress progress;
    const trace::MemoryTrace trace =
        capture::run_prompt(place.prompt, config, place.golden.weights,
                            {.model_dir = "golden", .positions = 40, .threads = 1}, progress);
    for (const std::size_t chunk : {0, 5}) {
      // Two sinks and the four newest of 15 tokens, and token 15 instead of the oldest of the four.
      LoopRequest request = Place::request({"streaming_llm(sinks=2)"}, {"6"});
      request.modes = {LoopMode::teacher};
      request.prefill_tokens = chunk;
      request.turns.front().answer = {text[3], text[5], text[8]};
      const auto run = [&](LoopPositions positions, const trace::Cut& cut) {
        request.positions = positions;
        const trace::Sequence sequence(trace, 0, cut);
        return closed_loop(sequence, place.prompt.ids, config, place.golden.weights, request, progress)
            .front()
            .cells[0]
            .modes[0]
            .measures;
      };
      const std::size_t n = place.prompt.ids.size();
      CAPTURE(variant, chunk);
      SECTION(std::string(variant) + " at every step, chunk " + std::to_string(chunk)) {
        const auto measures = run(LoopPositions::cache_step, {trace::Cut::At::position, n - 1});
        std::vector<std::int32_t> left = {text[0], text[1]};
        left.insert(left.end(), place.prompt.ids.end() - 4, place.prompt.ids.end());
        for (std::size_t k = 0; k < 3; ++k) {
          left.push_back(request.turns.front().answer[k]);
          CHECK(measures[k].log_p ==
                Approx(dense_log_p(place.golden, config, left, left.size() - 1)[0]).margin(1e-4));
          left.erase(left.begin() + 2);  // the oldest of the window makes room
        }
      }
      SECTION(std::string(variant) + " once, chunk " + std::to_string(chunk)) {
        const auto measures = run(LoopPositions::cache_once, {});
        std::vector<std::int32_t> left = {text[0], text[1]};
        left.insert(left.end(), place.prompt.ids.end() - 4, place.prompt.ids.end());
        left.push_back(request.turns.front().answer[0]);
        CHECK(measures[0].log_p ==
              Approx(dense_log_p(place.golden, config, left, left.size() - 1)[0]).margin(1e-4));
        // The numbers of the text are others.
        CHECK(std::fabs(run(LoopPositions::text, {})[0].log_p - measures[0].log_p) > 1e-4);
      }
    }
  }
}

}  // namespace kvsim::sim::test_loop_positions
