#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "policies/parts/rows/norms.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_critical_kv {

using Positions = std::vector<Position>;

namespace {

/// Returns the mean over query heads of the L1 norm of the value after the output projection.
double moves(const Run& run, std::size_t j) {
  double sum = 0;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    const auto lane = static_cast<std::size_t>(head / run.unit.group);
    for (std::size_t h = 0; h < kHidden; ++h) {
      double out = 0;
      for (std::size_t c = 0; c < 2; ++c)
        out += static_cast<double>(run.values[lane][j * 2 + c]) *
               static_cast<double>(run.output_weights[static_cast<std::size_t>(head)][c * kHidden + h]);
      sum += std::abs(out);
    }
  }
  return sum / run.unit.n_query_heads();
}

/// Both stages over tova(window=1), whose score is the last row.
Positions slow(const Run& run, std::size_t budget, double share, double epsilon) {
  const auto last = static_cast<Position>(run.prompt - 1);
  Positions rest, kept = {last};
  for (Position j = 0; j < last; ++j) rest.push_back(j);
  const auto take = [&](std::size_t up_to, auto score) {
    std::stable_sort(rest.begin(), rest.end(), [&](Position a, Position b) {
      return score(a) != score(b) ? score(a) > score(b) : a > b;
    });
    while (kept.size() < up_to && !rest.empty()) {
      kept.push_back(rest.front());
      rest.erase(rest.begin());
    }
  };
  const auto base = [&](Position j) { return mean_row(run, run.prompt - 1, j); };
  take(static_cast<std::size_t>(share * static_cast<double>(budget)), base);
  take(budget, [&](Position j) { return (base(j) + epsilon) * moves(run, static_cast<std::size_t>(j)); });
  std::sort(kept.begin(), kept.end());
  return kept;
}

/// kvpress's CriticalKVPress over its SnapKVPress: attention of the last rows averaged over them, pooled with
/// zeros beyond the ends, averaged over the group; the best half, then what weighs most with its value.
Positions slow_kvpress(const Run& run, std::size_t budget, std::size_t window, double epsilon) {
  const std::size_t n = run.prompt - window;
  const auto heads = static_cast<std::size_t>(run.unit.n_query_heads());
  std::vector<double> score(run.prompt, 1e9);
  for (std::size_t j = 0; j < n; ++j) {
    score[j] = 0;
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t k = j < 2 ? 0 : j - 2; k <= std::min(j + 2, n - 1); ++k)
        for (std::size_t i = n; i < run.prompt; ++i)
          score[j] += static_cast<double>(run.p(static_cast<int>(head), i, k)) /
                      (5.0 * static_cast<double>(window * heads));
  }
  const auto best = [&](std::size_t count, auto worth, std::vector<char>& taken) {
    for (std::size_t c = 0; c < count; ++c) {
      std::size_t at = run.prompt;
      for (std::size_t j = 0; j < run.prompt; ++j)
        if (!taken[j] && (at == run.prompt || worth(j) > worth(at))) at = j;
      taken[at] = 1;
    }
  };
  std::vector<char> taken(run.prompt);
  const std::size_t half = budget / 2;
  best(
      half, [&](std::size_t j) { return score[j]; }, taken);
  best(
      budget - half, [&](std::size_t j) { return (score[j] + epsilon) * moves(run, j); }, taken);
  Positions out;
  for (std::size_t j = 0; j < run.prompt; ++j)
    if (taken[j]) out.push_back(static_cast<Position>(j));
  return out;
}

}  // namespace

TEST_CASE("norms after the projection are those of the whole product, tile by tile") {
  const std::size_t n = 19, dim = 5, hidden = 601;  // larger than a tile in both directions
  std::vector<float> values(n * dim), weights(dim * hidden);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(normal(combine({1, i})));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(normal(combine({2, i})));
  const std::vector<double> norms =
      projected_norms({values.data(), n, dim, dim}, {weights.data(), dim, hidden, hidden});
  for (std::size_t j = 0; j < n; ++j) {
    double expected = 0;
    for (std::size_t h = 0; h < hidden; ++h) {
      double x = 0;
      for (std::size_t c = 0; c < dim; ++c)
        x += static_cast<double>(values[j * dim + c]) * static_cast<double>(weights[c * hidden + h]);
      expected += std::abs(x);
    }
    CHECK(norms[j] == Approx(expected).epsilon(1e-5));
  }
}

TEST_CASE("critical_kv spends half on attention and half on changes of the output, worked by hand") {
  Run run = blank_run({.prompt = 5, .decode = 1, .n_lanes = 1, .group = 1});
  // Attention 0.4 0.3 0.1 0.15 0.05 (the newest stays); values (v, 0) with v = 1 1 4 2 1, projected on ones.
  const std::vector<float> row = {0.4F, 0.3F, 0.1F, 0.15F, 0.05F}, value = {1, 1, 4, 2, 1};
  for (std::size_t j = 0; j < 5; ++j) run.p(0, 4, j) = row[j], run.values[0][j * 2] = value[j];
  for (std::size_t h = 0; h < kHidden; ++h) run.output_weights[0][h] = 1;
  // Budget 4: the base keeps 0 and 4; then 0.3, 0.4 and 0.3 (up to epsilon) times the width: 2 and, of equal
  // 1 and 3, where epsilon counts twice, 3.
  const std::string policy = "critical_kv(base=tova(window=1,unit=lane))";
  const Fed fed = feed(policy, run, 4);
  CHECK(fed.kept == Positions{0, 2, 3, 4});
  CHECK(fed.held[0] == Positions{0, 2, 3, 4, 5});
  CHECK(feed("critical_kv(base=tova(window=1,unit=lane),first_stage=1)", run, 4).kept ==
        Positions{0, 1, 3, 4});
}

TEST_CASE("critical_kv agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const int lanes = 1 + static_cast<int>(seed % 2);
    Run run = random_run({.prompt = 5 + seed % 13, .decode = 1, .n_lanes = lanes, .group = 2}, seed);
    for (auto* tensor : {&run.values, &run.output_weights})
      for (std::vector<float>& rows : *tensor)
        for (float& x : rows) x = 2 * x - 1;
    const double share = static_cast<double>(seed % 5) / 4, epsilon = seed % 3 == 0 ? 0.0001 : 0.5;
    const std::string policy = std::string("critical_kv(base=tova(window=1,unit=") +
                               (lanes == 1 ? "lane" : "layer") + "),first_stage=" + std::to_string(share) +
                               ",epsilon=" + std::to_string(epsilon) + ")";
    for (std::size_t budget = 1; budget < run.prompt + 1; ++budget) {
      CAPTURE(policy, seed, budget);
      CHECK(feed(policy, run, budget).kept == slow(run, budget, share, epsilon));
    }
  }
}

TEST_CASE("when every value changes the output equally critical_kv is its base") {
  Run run = random_run({.prompt = 60, .decode = 0, .n_lanes = 1, .group = 2}, 5);
  for (std::vector<float>& rows : run.values) std::fill(rows.begin(), rows.end(), 1.0F);
  for (std::size_t budget = 32; budget < 60; ++budget)
    CHECK(feed("critical_kv", run, budget).kept == feed("snapkv", run, budget).kept);
}

TEST_CASE("critical_kv needs what its base needs, and a base that ranks the prompt at its end") {
  const auto needs = [](const std::string& text) {
    return parse_composition(text, builtin()).eviction.needs();
  };
  CHECK(needs("critical_kv").prompt_rows == RowNeed::window);
  CHECK(needs("critical_kv(base=h2o)").prompt_rows == RowNeed::all);
  CHECK_FALSE(needs("critical_kv(base=h2o)").decode_rows);
  CHECK(needs("critical_kv(base=expected_attention)").queries);
  CHECK_THROWS_WITH(parse_composition("critical_kv(base=h2o(prompt=stream))", builtin()),
                    Catch::Contains("token by token"));
}

TEST_CASE("critical_kv over SnapKV is kvpress's, and epsilon is on the scale of a mean row") {
  std::size_t epsilon_matters = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Run run = random_run({.prompt = 48, .decode = 0, .n_lanes = 1, .group = 2}, seed);
    for (auto* tensor : {&run.values, &run.output_weights})
      for (std::vector<float>& rows : *tensor)
        for (float& x : rows) x = 2 * x - 1;
    for (const double epsilon : {0.0001, 0.02}) {
      const std::string policy =
          "critical_kv(base=snapkv(window=6,pool=avg:5),epsilon=" + std::to_string(epsilon) + ")";
      for (const std::size_t budget : {12U, 20U, 33U}) {
        CAPTURE(seed, epsilon, budget);
        const Positions expected = slow_kvpress(run, budget, 6, epsilon);
        CHECK(feed(policy, run, budget).kept == expected);
        epsilon_matters += expected != slow_kvpress(run, budget, 6, epsilon * 12) ? 1 : 0;
      }
    }
  }
  // Added to sums over six rows and two heads, it would have chosen otherwise.
  CHECK(epsilon_matters > 20);
}

TEST_CASE("critical_kv chooses the same when query heads are doubled, whatever its base") {
  const Run two = random_run({.prompt = 40, .decode = 0, .n_lanes = 1, .group = 2}, 3);
  Run four = random_run({.prompt = 40, .decode = 0, .n_lanes = 1, .group = 4}, 3);
  four.keys = two.keys, four.values = two.values, four.classes = two.classes;
  for (std::size_t head = 0; head < 4; ++head) {
    four.rows[head] = two.rows[head / 2];
    four.queries[head] = two.queries[head / 2];
    four.output_weights[head] = two.output_weights[head / 2];
  }
  for (const char* base :
       {"snapkv(window=5)", "snapkv(window=5,group=max)", "h2o", "h2o(normalise=mean)", "a2sf(alpha=0.9)",
        "cake(window=5)", "ems_like(window=5)", "nacl(random=0)", "tova", "pivotal_context"})
    for (const std::size_t budget : {10U, 21U, 32U}) {
      const std::string policy = std::string("critical_kv(base=") + base + ",epsilon=0.02)";
      CAPTURE(policy, budget);
      CHECK(feed(policy, two, budget).kept == feed(policy, four, budget).kept);
    }
}

TEST_CASE("scores of bases that add up attention are means of rows when divided by rows_in_score()") {
  // Every row pays the same to the first position and nothing to the others but itself.
  Run run = blank_run({.prompt = 50, .decode = 0, .n_lanes = 1, .group = 2});
  for (int head = 0; head < 2; ++head)
    for (std::size_t i = 0; i < run.prompt; ++i) {
      run.p(head, i, 0) = i == 0 ? 1.0F : 0.25F;
      if (i > 0) run.p(head, i, i) = 0.75F;
    }
  run.p(0, 0, 0) = run.p(1, 0, 0) = 0.25F;  // rows need not sum to one here
  for (const char* base :
       {"h2o", "h2o(rows=7)", "h2o(normalise=mean)", "h2o(prompt_weight=mean)", "a2sf(alpha=0.9)",
        "a2sf(alpha=0)", "tova", "snapkv(window=9,pool=none)", "snapkv(window=9,pool=none,group=max)",
        "ems_like(window=9)", "cake(window=9,pool=none)", "nacl(proxies=0.2)", "pivotal_context",
        "keyformer(noise=none)", "vatp(base=h2o,sinks=0)"}) {
    const Part part = parse_composition(base, builtin()).eviction;
    const auto eviction = part.make_eviction(run.unit);
    Run shown = run;
    for (std::vector<float>& rows : shown.values) std::fill(rows.begin(), rows.end(), 0.5F);
    if (part.spec->name == "keyformer") shown.p(0, 0, 0) = shown.p(1, 0, 0) = 1;  // a softmax sums to one
    feed_prompt(*eviction, shown);
    CAPTURE(base);
    const double expected = part.spec->name == "keyformer" ? (0.25 * 49 + 1) / 50 : 0.25;
    CHECK(eviction->scores()[0] / eviction->rows_in_score(run.prompt) == Approx(expected));
  }
}

}  // namespace kvsim::policy::test::test_eviction_critical_kv
