// Seconds of drafting and verifying.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/cost/drafting.hpp"
#include "sim/cost/estimate.hpp"

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

}  // namespace kvsim::cost::test_drafting
