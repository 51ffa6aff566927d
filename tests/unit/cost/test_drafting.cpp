// Seconds of drafting and verifying.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/drafting.hpp"
#include "sim/cost/estimate.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost::test_drafting {
namespace {

Serving served(std::uint64_t prompt, std::uint64_t batch) {
  Serving serving;
  serving.prompt = prompt;
  serving.generate = 80;
  serving.batch = batch;
  serving.tensor_parallel = 8;
  return serving;
}

}  // namespace

TEST_CASE("tokens of a round, by hand") {
  CHECK(tokens_of_round(0.8, 3) == Approx(2.952));
  CHECK(tokens_of_round(1, 5) == 6);
  CHECK(tokens_of_round(0, 5) == 1);
  CHECK(tokens_of_round(0.5, 0) == 1);
}

TEST_CASE("the fastest round is the fastest, and its numbers fit together") {
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  const Serving serving = served(8000, 4);
  const auto verify = [&](std::uint64_t gamma) {
    return verification_time(model, machine, serving, gamma + 1, 8040).seconds();
  };
  const double draft = verify(0) / 3;
  const Drafting best = fastest_drafting(model, machine, serving, draft, 0.8);
  CHECK(best.gamma > 0);
  CHECK(verify(0) == pass_time(model, machine, serving, 1, 8040, true).seconds());
  CHECK(verify(4) > verify(0));
  CHECK(best.verify == verify(best.gamma));
  CHECK(best.speedup == Approx(verify(0) / best.per_token));
  for (std::uint64_t gamma = 0; gamma <= 16; ++gamma)
    CHECK(best.per_token <=
          (static_cast<double>(gamma) * draft + verify(gamma)) / tokens_of_round(0.8, gamma));
  // A draft that is as dear as the full cache, or never accepted, is not worth a token.
  CHECK(fastest_drafting(model, machine, serving, verify(0), 0.5).gamma == 0);
  const Drafting refused = fastest_drafting(model, machine, serving, draft, 0);
  CHECK(refused.gamma == 0);
  CHECK(refused.speedup == 1);
  // Free drafts that are always accepted: as many as may be.
  CHECK(fastest_drafting(model, machine, serving, 0, 1, 7).gamma == 7);
}

TEST_CASE("MagicDec's speed-ups grow with the batch, and stay below what bandwidth allows") {
  // Eight A100, Llama-3.1-8B, prompts of 32,000: speed-ups of index.html of Infini-AI-Lab/MagicDec (commit
  // 09cd671) with drafts of StreamingLLM; acceptance of its figure at 32K, .81 with 512 tokens.
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  const policy::Composition draft = policy::parse_composition("streaming_llm", policy::builtin());
  double before = 1;
  struct Printed {
    std::uint64_t batch;
    std::uint64_t gamma;
    double speedup;
  };
  for (const Printed& printed : {Printed{32, 3, 1.22}, Printed{64, 3, 1.38}, Printed{128, 4, 1.47}}) {
    const Serving serving = served(32000, printed.batch);
    const double step = estimate(model, machine, serving, draft, 512).time.per_token;
    const Drafting best = fastest_drafting(model, machine, serving, step, 0.81);
    const double weights = 16.06e9, batch = static_cast<double>(printed.batch), token = 131072;
    // What is read of memory alone, with verification as dear as a step.
    const double share = (weights + batch * 512 * token) / (weights + batch * 32000 * token);
    const double ceiling = best.tokens / (static_cast<double>(best.gamma) * share + 1);
    CAPTURE(printed.batch, best.gamma, best.speedup, ceiling);
    CHECK(best.gamma == printed.gamma);
    CHECK(best.speedup > before);
    CHECK(best.speedup > printed.speedup);
    CHECK(best.speedup < ceiling);
    before = best.speedup;
  }
}

TEST_CASE("two levels, by hand") {
  // A step of 1 second drafts for a pass of 4, which accepts half: (1 + 4) / 1.5 is less than (2 + 4) / 1.75.
  Round inner{.draft = 1, .verify = [](std::uint64_t) { return 4.0; }, .alone = 4};
  const Drafting of_inner = fastest_drafting(inner, 0.5);
  CHECK(of_inner.gamma == 1);
  CHECK(of_inner.per_token == Approx(10.0 / 3));
  CHECK(of_inner.speedup == Approx(1.2));
  // Its tokens draft for a pass of 20, which accepts 80 %: (4 * 10/3 + 20) / 3.3616.
  const Round outer{.draft = of_inner.per_token, .verify = [](std::uint64_t) { return 20.0; }, .alone = 20};
  const Drafting of_outer = fastest_drafting(outer, 0.8);
  CHECK(of_outer.gamma == 4);
  CHECK(of_outer.per_token == Approx((40.0 / 3 + 20) / 3.3616));
  // With nothing accepted inside, the pass drafts alone.
  const Drafting alone = fastest_drafting(inner, 0);
  CHECK(alone.gamma == 0);
  CHECK(alone.per_token == 4);
  // Half a second for each token that came of a round: (1 + 4 + .75) / 1.5 is still less than 4.
  inner.calibrate = [](double tokens) { return tokens / 2; };
  const Drafting calibrated = fastest_drafting(inner, 0.5);
  CHECK(calibrated.gamma == 1);
  CHECK(calibrated.calibrate == 0.75);
  CHECK(calibrated.per_token == Approx(5.75 / 1.5));
  // And a pass that takes a second is not waited for where nothing is drafted.
  inner.calibrate = [](double) { return 9.0; };
  CHECK(fastest_drafting(inner, 0.5).per_token == 4);
}

TEST_CASE("attention of several layers at once, by hand") {
  // Six layers of width 32: the first and the last alone, four others together: three of six attentions.
  Model model = cache_shape("toy", 6, 4, 2, 8);
  model.hidden = 32;
  model.ffn = 64;
  model.vocab = 100;
  Machine machine = ideal(1e30, 1e9);
  machine.device = {.bandwidth = 1e6, .latency = 1e-4};
  Serving serving;
  serving.prompt = 100;
  serving.generate = 11;
  const Holding holding = full_holding(model, 2, 100);
  const PassTime step = step_time(model, machine, serving, holding, {}, 5);
  // Weights and the numbers that go in and come out, in 16 bits: 32 x 64 and 32 x 32.
  const double products = 2 * (32 * 64 + 32 * 32 + 32 + 64 + 32 + 32) / 1e9;
  const double attention = step[OpClass::attention].seconds + 6 * products;
  CHECK(layer_parallel_time(model, machine, serving, step, 1) == Approx(step.seconds()));
  // One exchange of three outputs of 32 numbers.
  CHECK(layer_parallel_time(model, machine, serving, step, 4) ==
        Approx(step.seconds() - attention / 2 + 1e-4 + 3 * 32 * 2 / 1e6));
  // Two groups of two: four of six attentions, two exchanges.
  CHECK(layer_parallel_time(model, machine, serving, step, 2) ==
        Approx(step.seconds() - attention / 3 + 2 * (1e-4 + 32 * 2 / 1e6)));
  CHECK_THROWS_AS(layer_parallel_time(find_model("deepseek-v3"), find_machine("b200"), serving, step, 2),
                  Error);
}

TEST_CASE("a policy's cache verifies as the full one does, and for less") {
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  const Serving serving = served(8000, 4);
  const Holding whole = whole_holding(model, 8, 8000);
  CHECK(verification_time(model, machine, serving, whole, {}, 4, 4).seconds() ==
        verification_time(model, machine, serving, 4, 8000).seconds());
  CHECK(verification_time(model, machine, serving, whole, {}, 1, 1).seconds() ==
        step_time(model, machine, serving, whole, {}, 1).seconds());
  const policy::Composition small = policy::parse_composition("streaming_llm", policy::builtin());
  const Holding held = rule_holding(small, model, 8, 8000, 80, 512);
  const policy::Cost cost = cost_of(small, model, 8000, 512);
  double before = step_time(model, machine, serving, held, cost, 40).seconds();
  CHECK(verification_time(model, machine, serving, held, cost, 1, 40).seconds() == before);
  for (const std::uint64_t tokens : {2U, 5U, 9U}) {
    const double now = verification_time(model, machine, serving, held, cost, tokens, 40).seconds();
    CHECK(now > before);
    CHECK(now < verification_time(model, machine, serving, tokens, 8040).seconds());
    before = now;
  }
}

}  // namespace kvsim::cost::test_drafting
