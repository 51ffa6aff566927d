// Several questions about one context, and how far the model's state drifts.
#include "sim/base/error.hpp"
#include "sim/loop/cell_drift.hpp"
#include "tests/unit/loop/loop_place.hpp"

namespace kvsim::sim::test_loop_turns {
namespace {

const trace::Cut kCut{trace::Cut::At::position, 20};
const std::vector<std::string> kPolicies = {"h2o", "snapkv(window=4)", "h2o(prompt=stream)"};

/// The first 20 tokens, then another question than the prompt's own.
LoopOutcome alone(const std::string& variant, const std::vector<std::int32_t>& question,
                  const LoopTurn& turn) {
  Place place(variant);
  place.prompt.ids.resize(20);
  place.prompt.ids.insert(place.prompt.ids.end(), question.begin(), question.end());
  const trace::MemoryTrace trace = place.read();
  const trace::Sequence sequence(trace, 0, kCut);
  LoopRequest request = Place::request(kPolicies, {"8"});
  request.turns.front().answer = turn.answer;
  Progress progress;
  return closed_loop(sequence, place.prompt.ids, place.golden.config, place.golden.weights, request, progress)
      .front();
}

void check_same(const LoopOutcome& a, const LoopOutcome& b) {
  for (std::size_t cell = 0; cell < kPolicies.size(); ++cell)
    for (std::size_t mode = 0; mode < 2; ++mode) {
      CAPTURE(kPolicies[cell], mode);
      const StreamOutcome &x = a.cells[cell].modes[mode], &y = b.cells[cell].modes[mode];
      CHECK(x.tokens == y.tokens);
      CHECK(x.held_tokens == y.held_tokens);
      REQUIRE(x.measures.size() == y.measures.size());
      for (std::size_t k = 0; k < x.measures.size(); ++k) {
        CHECK(x.measures[k].kl == y.measures[k].kl);
        CHECK(x.measures[k].log_p == y.measures[k].log_p);
      }
    }
}

}  // namespace

TEST_CASE("several requests on one context are as many runs of their own") {
  // Questions of one length: the prompt is then processed in the same passes.
  Place place("llama_rope_llama3");
  LoopRequest request = Place::request(kPolicies, {"8"});
  request.turns = {{{}, {3, 1, 4}}, {{7, 11, 13, 2}, {5, 9}}, {{1, 2, 3, 4}, {}}};
  const std::vector<LoopOutcome> turns = place.turns(request, kCut);
  REQUIRE(turns.size() == 3);
  check_same(turns[0], alone("llama_rope_llama3", {place.prompt.ids.begin() + 20, place.prompt.ids.end()},
                             request.turns[0]));
  check_same(turns[1], alone("llama_rope_llama3", request.turns[1].question, request.turns[1]));
  check_same(turns[2], alone("llama_rope_llama3", request.turns[2].question, request.turns[2]));
}

TEST_CASE("a turn after golden answers is a question that begins with them") {
  Place place("llama_rope_llama3");
  LoopRequest request = Place::request(kPolicies, {"8"});
  request.turns = {{{}, {3, 1}}, {{7, 11}, {5, 9}}};
  request.protocol = TurnProtocol::golden;
  const std::vector<LoopOutcome> turns = place.turns(request, kCut);
  LoopRequest asked = Place::request(kPolicies, {"8"});
  std::vector<std::int32_t> text(place.prompt.ids.begin() + 20, place.prompt.ids.end());
  text.insert(text.end(), {3, 1, 7, 11});
  asked.turns = {{}, {text, {5, 9}}};
  check_same(turns[1], place.turns(asked, kCut)[1]);
  CHECK(turns[1].fed == 2);
}

TEST_CASE("own answers: one turn is a single question, and what was answered is what the next turn follows") {
  Place place("llama_rope_llama3");
  LoopRequest request = Place::request(kPolicies, {"8"});
  request.modes = {LoopMode::greedy};
  request.protocol = TurnProtocol::own;
  const LoopOutcome single = place.turns(request, kCut).front();
  request.turns = {{{}, {3, 1}}, {{7, 11}, {5, 9}}};
  const std::vector<LoopOutcome> turns = place.turns(request, kCut);
  for (std::size_t cell = 0; cell < kPolicies.size(); ++cell) {
    CAPTURE(kPolicies[cell]);
    CHECK(turns[0].cells[cell].modes[0].tokens == single.cells[cell].modes[0].tokens);
    // The same conversation, given.
    LoopRequest golden = Place::request({kPolicies[cell]}, {"8"});
    golden.protocol = TurnProtocol::golden;
    golden.turns = {{{}, turns[0].cells[cell].modes[0].tokens}, {{7, 11}, {5, 9}}};
    CHECK(place.turns(golden, kCut)[1].cells[0].modes[1].tokens == turns[1].cells[cell].modes[0].tokens);
  }
}

TEST_CASE("turns that cannot follow are refused") {
  Place place("llama_rope_llama3");
  LoopRequest request = Place::request({"h2o"}, {"8"});
  request.turns = {{{}, {3}}, {{7}, {5}}};
  CHECK_THROWS_WITH(place.turns(request, {}), Catch::Contains("holds the first question"));
  request.protocol = TurnProtocol::golden;
  CHECK_NOTHROW(place.turns(request, {}));
  request.turns.front().answer.clear();
  CHECK_THROWS_WITH(place.turns(request, kCut), Catch::Contains("question 1 has no answer"));
}

TEST_CASE("evidence of a later turn is its own") {
  Place place("llama_rope_llama3");
  LoopRequest request = Place::request({"streaming_llm(sinks=2)"}, {"6"});
  request.turns = {{{}, {3}}, {{7}, {5}, {0, 1, 10}}};
  const std::vector<LoopOutcome> turns = place.turns(request, kCut);
  CHECK_FALSE(turns[0].cells[0].modes[0].evidence_held.has_value());
  CHECK(turns[1].cells[0].modes[0].evidence_held == Approx(2.0 / 3));
  CHECK(turns[1].cells[0].modes[0].evidence_nowhere == Approx(1.0 / 3));
}

TEST_CASE("a layer drifts from what it and the layers before it evict") {
  Place place("llama_rope_llama3");
  const std::uint32_t layers = place.golden.config.n_layers;
  REQUIRE(layers >= 2);
  for (std::uint32_t first = 1; first < layers; ++first) {
    LoopRequest request =
        Place::request({"random+exempt(first=" + std::to_string(first) + ",last=0)"}, {"18"});
    request.modes = {LoopMode::teacher};
    const LoopOutcome outcome = place.run(request, {trace::Cut::At::position, 22});
    CAPTURE(first, outcome.cells[0].skipped);
    REQUIRE(outcome.cells[0].skipped.empty());
    const std::vector<LayerDrift>& drift = outcome.cells[0].modes[0].drift;
    REQUIRE(drift.size() == layers);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      CHECK((drift[layer].query_l2 > 0) == (layer > first));
      CHECK((drift[layer].residual_l2 > 0) == (layer >= first));
      CHECK((drift[layer].residual_cosine < 1) == (layer >= first));
    }
  }
}

TEST_CASE("drift, worked by hand") {
  DriftMean mean;
  const float full[] = {3, 4}, cell[] = {3, 0};
  mean.add_queries({full, 2, 1, 1}, {cell, 2, 1, 1});
  mean.add_residual(full, cell);
  mean.add_queries({full, 1, 2, 2}, {full, 1, 2, 2});
  mean.add_residual(full, full);
  CHECK(mean.mean().query_l2 == Approx(0.4));         // (4/5 + 0) / 2
  CHECK(mean.mean().residual_l2 == Approx(0.4));      // the same
  CHECK(mean.mean().residual_cosine == Approx(0.8));  // (9 / (5 * 3) + 1) / 2
}

}  // namespace kvsim::sim::test_loop_turns
