// The best permanent eviction: compares the textbook's minimum-cost flow with this solver.
//
// The textbook builds the network of tokens times steps and pushes one unit per slot along shortest paths.
// Both get the same attention and must retain the same. Where the textbook takes too long, the time is
// compared with greedy's.
#include <cmath>
#include <cstdlib>
#include <string>

#include "policies/parts/oracles/optimal_retention.hpp"
#include "policies/parts/oracles/planned_oracle.hpp"
#include "tests/bench/paired.hpp"
#include "tests/support/decoding_rows.hpp"
#include "tests/support/retained_attention.hpp"
#include "tests/support/textbook_retention.hpp"

using namespace kvsim;

namespace {

std::string title(const test::Decoding& run, std::size_t budget, const char* pair) {
  return "prompt " + std::to_string(run.prompt) + ", " + std::to_string(run.n_steps) + " steps, " +
         std::to_string(budget) + " slots: " + pair;
}

double best_retains(const test::Decoding& run, std::size_t budget) {
  const policy::MassAhead future(run.view(), run.prompt);
  return test::retained_attention(run.view(), policy::OptimalRetention(future).plan(future, budget));
}

double greedy_retains(const test::Decoding& run, std::size_t budget) {
  const policy::MassAhead future(run.view(), run.prompt);
  return test::retained_attention(run.view(), policy::future_greedy(future, budget));
}

void textbook_against_ours(std::size_t prompt, std::size_t n_steps, std::size_t budget, int pairs) {
  const test::Decoding run = test::lifelike_rows(prompt, n_steps, 1);
  double ours = 0, theirs = 0;
  const bench::Paired times =
      bench::paired([&] { theirs = test::TextbookRetention(run.view(), prompt, budget).solve(); },
                    [&] { ours = best_retains(run, budget); }, pairs);
  if (!(std::abs(ours - theirs) < 1e-7)) {
    std::printf("not the same optimum: %.12f against %.12f\n", ours, theirs);
    std::exit(1);
  }
  bench::report(title(run, budget, "textbook / ours").c_str(), times);
}

void ours_against_greedy(std::size_t prompt, std::size_t n_steps, std::size_t budget, int pairs) {
  const test::Decoding run = test::lifelike_rows(prompt, n_steps, 1);
  double best = 0, greedy = 0;
  const bench::Paired times = bench::paired([&] { best = best_retains(run, budget); },
                                            [&] { greedy = greedy_retains(run, budget); }, pairs);
  bench::report(title(run, budget, "ours / greedy").c_str(), times);
  std::printf("  lost attention: greedy %.4f, optimum %.4f\n", 1 - greedy / static_cast<double>(n_steps),
              1 - best / static_cast<double>(n_steps));
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 7;
  textbook_against_ours(128, 32, 32, pairs);
  textbook_against_ours(256, 64, 64, pairs);
  textbook_against_ours(512, 128, 128, std::min(pairs, 3));
  ours_against_greedy(512, 128, 128, pairs);
  ours_against_greedy(2048, 512, 128, pairs);
  ours_against_greedy(2048, 512, 512, pairs);
  ours_against_greedy(4096, 64, 1024, pairs);
  return 0;
}
