#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "sim/base/error.hpp"
#include "tests/unit/model/golden_checkpoint.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/capture/capture.hpp"
#include "traces/format/reader.hpp"
#include "traces/model/generation.hpp"

namespace kvsim::model::test_sampling {
namespace {

using Catch::Matchers::Contains;

/// Logits with probabilities `p` at temperature 1.
std::vector<float> logits_of(const std::vector<double>& p) {
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x)) + 3);
  return logits;
}

/// How often each id is drawn in `n` steps.
std::map<std::int32_t, double> frequencies(const std::vector<float>& logits, const Sampling& sampling,
                                           int n) {
  std::map<std::int32_t, double> counts;
  for (int step = 0; step < n; ++step)
    ++counts[choose_token(logits, sampling, static_cast<std::uint64_t>(step))];
  return counts;
}

/// Sum of (seen - expected)^2 / expected over the ids with expected share p > 0; other ids must not occur.
double chi_square(std::map<std::int32_t, double> seen, const std::vector<double>& p, int n) {
  double sum = 0;
  for (std::size_t id = 0; id < p.size(); ++id) {
    const double expected = p[id] * n, count = seen[static_cast<std::int32_t>(id)];
    if (expected == 0) {
      CHECK(count == 0);
    } else {
      sum += (count - expected) * (count - expected) / expected;
    }
  }
  return sum;
}

const std::vector<double> kShares{0.1, 0.4, 0.05, 0.25, 0.2};
constexpr int kDraws = 20000;
// Chi-square exceeds this with probability 0.001 (degrees of freedom: 4, 2).
constexpr double kFour = 18.47, kTwo = 13.82;

Generation generated(const GoldenCheckpoint& golden, const Sampling& sampling, unsigned threads,
                     std::vector<std::int32_t> given = {}) {
  std::vector<std::int32_t> prompt = golden.tokens();
  prompt.resize(12);
  cpu::CpuRun run(golden.config, golden.weights, {.capacity = 32, .threads = threads});
  RunObserver nobody;
  Progress progress;
  return generate(run, prompt, {20, 5, {}, sampling, std::move(given)}, nobody, progress);
}

}  // namespace

TEST_CASE("greedy takes the largest logit, the lowest id among equals") {
  CHECK(choose_token(std::vector<float>{1, 7, 2, 7}, {}, 0) == 1);
  CHECK(choose_token(std::vector<float>{-5}, {}, 9) == 0);
}

TEST_CASE("draws follow the probabilities") {
  const std::vector<float> logits = logits_of(kShares);
  CHECK(chi_square(frequencies(logits, {1, 0, 1, 5}, kDraws), kShares, kDraws) < kFour);
  // Temperature 2 takes square roots, 1/2 squares.
  for (const double temperature : {2.0, 0.5}) {
    std::vector<double> shares;
    double sum = 0;
    for (const double p : kShares) sum += shares.emplace_back(std::pow(p, 1 / temperature));
    for (double& p : shares) p /= sum;
    CHECK(chi_square(frequencies(logits, {temperature, 0, 1, 5}, kDraws), shares, kDraws) < kFour);
    CHECK(chi_square(frequencies(logits, {temperature, 0, 1, 5}, kDraws), kShares, kDraws) > kFour);
  }
}

TEST_CASE("top-k, then top-p of what it leaves, by hand") {
  const std::vector<float> logits = logits_of(kShares);  // in decreasing order: ids 1, 3, 4, 0, 2
  CHECK(chi_square(frequencies(logits, {1, 3, 1, 7}, kDraws), {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85},
                   kDraws) < kTwo);
  // Cumulative shares 0.4, 0.65, 0.85, 0.95, 1.
  const std::vector<double> two{0, 0.4 / 0.65, 0, 0.25 / 0.65, 0}, one{0, 1, 0, 0, 0};
  CHECK(chi_square(frequencies(logits, {1, 0, 0.6, 7}, kDraws), two, kDraws) < kTwo);
  CHECK(chi_square(frequencies(logits, {1, 0, 0.39, 7}, kDraws), one, kDraws) == 0);
  CHECK(frequencies(logits, {1, 0, 0.41, 7}, kDraws).size() == 2);
  CHECK(frequencies(logits, {1, 0, 0.66, 7}, kDraws).size() == 3);
  CHECK(frequencies(logits, {1, 0, 0.96, 7}, kDraws).size() == 5);
  // Of the three most probable, 0.47, 0.29 and 0.24, the first two hold 0.7: without top-k it would take
  // three.
  CHECK(frequencies(logits, {1, 0, 0.7, 7}, kDraws).size() == 3);
  CHECK(chi_square(frequencies(logits, {1, 3, 0.7, 7}, kDraws), two, kDraws) < kTwo);
  // At temperature 1/2 the first has 0.16 of 0.275, more than half.
  CHECK(chi_square(frequencies(logits, {0.5, 0, 0.5, 7}, kDraws), one, kDraws) == 0);
  // Equals are cut by id.
  CHECK(frequencies({1, 1, 1, 1}, {1, 2, 1, 7}, kDraws).count(2) == 0);
  CHECK(frequencies({1, 1, 1, 1}, {1, 0, 0.5, 7}, kDraws).size() == 2);
  CHECK(frequencies({1, 1, 1, 1}, {1, 0, 0.51, 7}, kDraws).size() == 3);
}

TEST_CASE("one candidate is greedy, and so is the cold limit") {
  const std::vector<float> logits = logits_of(kShares);
  const std::vector<Sampling> cold{{1, 1, 1, 3},    {5, 1, 0.5, 3},    {1, 0, 1e-300, 3},
                                   {1e-3, 0, 1, 3}, {1e-300, 0, 1, 3}, {5e-324, 9, 0.9, 3}};
  for (const Sampling& sampling : cold) CHECK(frequencies(logits, sampling, 1000).size() == 1);
  CHECK(frequencies(logits, cold[4], 10).count(1) == 1);
  CHECK(frequencies(logits, {1e308, 0, 1, 3}, 1000).size() == 5);  // hot: any id
}

TEST_CASE("a draw depends on seed and step alone") {
  const std::vector<float> logits(1000, 0.5F);
  const auto draws = [&](std::uint64_t seed) {
    std::vector<std::int32_t> ids;
    for (std::uint64_t step = 0; step < 50; ++step)
      ids.push_back(choose_token(logits, {1, 0, 1, seed}, step));
    return ids;
  };
  CHECK(draws(1) == draws(1));
  CHECK(draws(1) != draws(2));
  CHECK(choose_token(logits, {1, 0, 1, 1}, 40) == draws(1)[40]);
}

TEST_CASE("log probabilities are those of the whole distribution") {
  const std::vector<float> logits = logits_of(kShares);
  const LogProbabilities log_p(logits);
  CHECK(log_p.finite());
  for (std::int32_t id = 0; id < 5; ++id)
    CHECK(log_p.of(id) == Approx(std::log(kShares[static_cast<std::size_t>(id)])).margin(1e-6));
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float wrong : {infinity, std::numeric_limits<float>::quiet_NaN()})
    CHECK_FALSE(LogProbabilities(std::vector<float>{1, wrong, 2}).finite());
}

TEST_CASE("sampling options out of range, or without effect, are refused") {
  const auto complaint = [](const Sampling& sampling) -> std::string {
    try {
      check_sampling(sampling);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return error.what();
    }
    return "accepted";
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double temperature : {-0.1, nan, std::numeric_limits<double>::infinity()})
    CHECK_THAT(complaint({temperature, 0, 1, 0}), Contains("--temperature"));
  for (const double top_p : {0.0, -1.0, 1.0001, nan})
    CHECK_THAT(complaint({1, 0, top_p, 0}), Contains("--top-p"));
  CHECK_THAT(complaint({0, 5, 1, 0}), Contains("--top-k") && Contains("greedy"));
  CHECK_THAT(complaint({0, 0, 0.9, 0}), Contains("--top-p") && Contains("greedy"));
  CHECK_THAT(complaint({0, 0, 1, 7}), Contains("--seed") && Contains("greedy"));
  CHECK(complaint({}) == "accepted");
  CHECK(complaint({0.7, 40, 0.95, 7}) == "accepted");
  CHECK(sampling_text({}) == "greedy");
  CHECK(sampling_text({0.7, 40, 0.95, 7}) == "temperature 0.7, top-k 40, top-p 0.95");
  CHECK(sampling_text({1, 0, 1, 7}) == "temperature 1");
}

TEST_CASE("sampled runs are the same at any thread count and differ by seed") {
  const GoldenCheckpoint golden("phi3_partial_rotary");
  const Sampling warm{1.5, 50, 0.9, 11};
  const Generation one = generated(golden, warm, 1);
  CHECK(generated(golden, warm, 8).tokens == one.tokens);
  CHECK(generated(golden, {1.5, 50, 0.9, 12}, 1).tokens != one.tokens);
  CHECK(generated(golden, {1.5, 1, 1, 12}, 1).tokens == generated(golden, {}, 1).tokens);
}

TEST_CASE("a given answer runs as the chosen one did") {
  const GoldenCheckpoint golden("llama_tied");
  const Generation chosen = generated(golden, {1, 0, 1, 3}, 2);
  const std::vector<std::int32_t> answer(chosen.tokens.begin() + 12, chosen.tokens.end());
  REQUIRE(answer.size() == 20);
  const Generation given = generated(golden, {}, 2, answer);
  CHECK(given.tokens == chosen.tokens);
  CHECK(std::equal(given.logprob.begin() + 12, given.logprob.end(), chosen.logprob.begin() + 12));
  REQUIRE(given.passes.size() == 3 + 20);
  CHECK(given.passes[2].phase == trace::Phase::prompt);
  CHECK((given.passes[3].phase == trace::Phase::teacher_forced && given.passes[3].segment == 1));
}

TEST_CASE("a trace states how its tokens were chosen") {
  const GoldenCheckpoint golden("llama_tied");
  const test::Scratch scratch;
  std::ofstream(scratch.file("prompt.txt")) << "5 6 7 8";
  std::ofstream(scratch.file("answer.json")) << "[9, 2, 11]";
  capture::CaptureOptions options;
  options.model_dir = golden.directory;
  options.tokens_file = scratch.file("prompt.txt");
  options.max_new_tokens = 6;
  options.ignore_eos = true;
  const auto header = [&](const std::string& name) {
    options.output = scratch.file(name);
    Progress progress;
    capture::run_capture(options, progress);
    return trace::open_trace(options.output)->header();
  };
  CHECK(header("greedy.h5").capture.sampling == "greedy");
  options.sampling = {0.5, 10, 1, 42};
  const trace::Header sampled = header("sampled.h5");
  CHECK(sampled.capture.sampling == "temperature 0.5, top-k 10");
  CHECK(sampled.capture.seed == 42);
  CHECK_FALSE(sampled.capture.teacher_forced);
  options.sampling = {};
  options.given_file = scratch.file("answer.json");
  const trace::Header forced = header("forced.h5");
  CHECK(forced.capture.teacher_forced);
  CHECK(forced.capture.sampling == "given");
  // 2 ends a generated answer; a given answer continues.
  CHECK(forced.token_id == std::vector<std::int32_t>{5, 6, 7, 8, 9, 2, 11});
  REQUIRE(forced.segments.size() == 2);
  CHECK(forced.segments[1].phase == trace::Phase::teacher_forced);
  CHECK(forced.token_logprob[4] < 0);
  std::ofstream(scratch.file("answer.json")) << "[]";
  CHECK_THROWS_WITH(header("none.h5"), Contains("holds no tokens"));
  std::ofstream(scratch.file("answer.json")) << "[257]";
  CHECK_THROWS_WITH(header("none.h5"), Contains("257"));
}

}  // namespace kvsim::model::test_sampling
