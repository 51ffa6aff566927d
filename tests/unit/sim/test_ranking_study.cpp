// Tests cumulative loss and ALR on worked orders, on properties, and against rankings made from the
// definitions.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/inspect/ranking_study.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/slow_replay.hpp"

namespace kvsim::test_ranking_study {

using Doubles = std::vector<double>;

namespace {

sim::Ranking policy_ranking(const std::string& text) {
  return {sim::Ranking::By::policy, policy::parse_composition(text, policy::builtin()).eviction};
}

std::vector<sim::LaneRankings> study(const trace::MemoryTrace& trace, const sim::RankingStudy& wanted) {
  Progress progress;
  return sim::ranking_study(trace::Sequence(trace), wanted, progress);
}

Doubles draws(std::size_t n, std::uint64_t key) {
  Doubles out;
  for (std::uint64_t i = 0; i < n; ++i) out.push_back(uniform01(combine({key, i})));
  return out;
}

Doubles backwards(Doubles values) {
  std::reverse(values.begin(), values.end());
  return values;
}

/// Returns Y as the sum over m of two sums that are computed anew for each m. Ties take the mean of their
/// order forwards and backwards, which is the mean of all their orders.
double slow_area(const Doubles& attention, const Doubles& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Doubles sorted = attention;
  std::sort(sorted.begin(), sorted.end());
  double area = 0;
  for (const bool turned : {false, true}) {
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return scores[a] != scores[b] ? scores[a] < scores[b] : (a < b) != turned;
    });
    for (std::size_t m = 1; m <= order.size(); ++m)
      for (std::size_t k = 0; k < m; ++k) area += (attention[order[k]] - sorted[k]) / 2;
  }
  return area;
}

/// Returns the means of what a layer holds of a prompt, from `first` on: of its columns over all its rows, or
/// over the rows that see them, averaged over the lane's two heads.
Doubles slow_means(const trace::Sequence& sequence, std::uint32_t layer, std::uint32_t lane,
                   std::size_t first, bool visible) {
  const std::size_t prompt = sequence.prompt_length();
  Doubles out(prompt - first);
  for (std::uint32_t head = 2 * lane; head < 2 * lane + 2; ++head) {
    const test::Rows a = test::attention(sequence, layer, head);
    for (std::size_t j = first; j < prompt; ++j) {
      double sum = 0, rows = 0;
      for (std::size_t t = j; t < prompt; ++t) {
        sum += a[t][j];
        rows += 1;
      }
      out[j - first] += sum / (visible ? rows : static_cast<double>(prompt - first)) / 2;
    }
  }
  return out;
}

}  // namespace

TEST_CASE("the order of drops, worked by hand") {
  // Lowest score first: positions 1, 2, 0, 3.
  CHECK(sim::attention_in_drop_order(Doubles{0.5, 0.125, 0.25, 0.125}, Doubles{7, -1, 2, 9}) ==
        Doubles{0.125, 0.25, 0.5, 0.125});
  // Positions 0 and 3 tie: each is equally likely to be dropped first.
  CHECK(sim::attention_in_drop_order(Doubles{0.5, 0.125, 0.25, 0.125}, Doubles{7, -1, 2, 7}) ==
        Doubles{0.125, 0.25, 0.3125, 0.3125});
  CHECK(sim::least_attention_first(Doubles{0.5, 0.125, 0.25, 0.125}) == Doubles{0.125, 0.125, 0.25, 0.5});
  CHECK(sim::cumulative_loss(Doubles{0.125, 0.25, 0.5, 0.125}) == Doubles{0, 0.125, 0.375, 0.875, 1});
  // L of 0.125 0.375 0.875 1 against 0.125 0.25 0.5 1: 0 + 0.125 + 0.375 + 0.
  CHECK(sim::excess_area(Doubles{0.125, 0.25, 0.5, 0.125}, Doubles{0.125, 0.125, 0.25, 0.5}) == 0.5);
  CHECK(sim::attention_in_drop_order({}, {}).empty());
  CHECK(sim::excess_area({}, {}) == 0);
}

TEST_CASE(
    "properties of the area: the least order has 0, its reverse the most, a random order half of that") {
  for (std::uint64_t n : {1U, 2U, 7U, 100U}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Doubles attention = draws(n, combine({1, n, seed})),
                    least = sim::least_attention_first(attention);
      const double most = sim::excess_area(backwards(least), least);
      CHECK(sim::excess_area(sim::attention_in_drop_order(attention, attention), least) == 0);
      const double by_lot = sim::excess_area(sim::attention_in_drop_order(attention, Doubles(n, 3.0)), least);
      CHECK(by_lot == Approx(most / 2).margin(1e-12));
      for (std::uint64_t other = 0; other < 5; ++other) {
        Doubles scores = draws(n, combine({2, n, seed, other}));
        const double area = sim::excess_area(sim::attention_in_drop_order(attention, scores), least);
        CHECK(area == Approx(slow_area(attention, scores)).margin(1e-9));
        CHECK(area >= 0);
        CHECK(area <= most + 1e-12);
        for (double& score : scores) score = -score;  // the same order reversed
        CHECK(sim::excess_area(sim::attention_in_drop_order(attention, scores), least) ==
              Approx(most - area).margin(1e-9));
      }
    }
  }
}

TEST_CASE("a study of rankings agrees with their definitions") {
  const bool visible = GENERATE(false, true);
  const trace::MemoryTrace trace =
      test::random_trace({.prompt = 150, .decode = 3, .seed = 4, .layer_window = {-1, 40}});
  const trace::Sequence sequence(trace);
  sim::RankingStudy wanted{.rankings = {policy_ranking("l2_norm"),
                                        {sim::Ranking::By::hash, {}},
                                        {sim::Ranking::By::recency, {}},
                                        policy_ranking("h2o(recent=0)"),
                                        policy_ranking("l2_norm(sinks=2,window=3)")},
                           .mean = visible ? sim::RowMean::visible : sim::RowMean::all_rows,
                           .dropped = {0, 0.5, 0.333, 1},
                           .hash_bits = 5,
                           .seed = 3,
                           .threads = 2};
  const std::vector<sim::LaneRankings> lanes = study(trace, wanted);
  REQUIRE(lanes.size() == 4);
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (std::uint32_t head = 0; head < 2; ++head) {
      const sim::LaneRankings& lane = lanes[layer * 2 + head];
      // A layer with a window of 40 holds the last 40 of the prompt.
      const std::size_t first = layer == 0 ? 0 : 110, n = 150 - first;
      const Doubles attention = slow_means(sequence, layer, head, first, visible);
      const test::Rows k = test::read_all(sequence, trace::Tensor::key, layer, head);
      Doubles norm, near, age(n);
      std::iota(age.begin(), age.end(), 0.0);
      for (std::size_t j = first; j < 150; ++j)
        norm.push_back(-std::sqrt(std::inner_product(k[j].begin(), k[j].end(), k[j].begin(), 0.0)));
      const auto code = [&](const std::vector<double>& x, std::uint64_t bit) {
        const std::uint64_t key = combine({3, key_of("hash ranking"), layer, head});
        double dot = 0;
        for (std::uint64_t c = 0; c < 8; ++c) dot += normal(combine({key, bit, c})) * x[c];
        return dot >= 0;
      };
      const test::Rows q[] = {test::read_all(sequence, trace::Tensor::query, layer, 2 * head),
                              test::read_all(sequence, trace::Tensor::query, layer, 2 * head + 1)};
      for (std::size_t j = first; j < 150; ++j) {
        double distance = 0;
        for (const test::Rows& queries : q)
          for (std::size_t i = j; i < 150; ++i)
            for (std::uint64_t bit = 0; bit < 5; ++bit)
              distance += code(queries[i], bit) != code(k[j], bit) ? 1 : 0;
        near.push_back(-distance / 2 / static_cast<double>(150 - j));
      }
      CHECK(lane.rankings[0].area == Approx(slow_area(attention, norm)).margin(1e-3));
      CHECK(lane.rankings[1].area == Approx(slow_area(attention, near)).margin(1e-3));
      CHECK(lane.rankings[2].area == Approx(slow_area(attention, age)).margin(1e-3));
      // Accumulated attention is the mean over all rows: no ranking is better.
      if (!visible) CHECK(lane.rankings[3].area == 0);
      Doubles worst;
      for (const double a : attention) worst.push_back(-a);
      CHECK(lane.largest_area == Approx(slow_area(attention, worst)).margin(1e-3));
      // Protected positions are dropped last, in random order. The sinks are not in the window.
      if (layer == 0) norm[0] = norm[1] = 1;
      norm[n - 3] = norm[n - 2] = norm[n - 1] = 1;
      CHECK(lane.rankings[4].area == Approx(slow_area(attention, norm)).margin(1e-3));
      const double all = std::accumulate(attention.begin(), attention.end(), 0.0);
      const Doubles least = sim::least_attention_first(attention);
      // Shares: none, half, 0.333 * 150 = 49.95 rounded to 50 positions, or 13.32 of 40 to 13, all.
      const std::ptrdiff_t half = layer == 0 ? 75 : 20, third = layer == 0 ? 50 : 13;
      REQUIRE(lane.rankings[2].loss.size() == 4);
      CHECK(lane.rankings[2].loss[0] == 0);
      CHECK(lane.rankings[2].loss[1] ==
            Approx(std::accumulate(attention.begin(), attention.begin() + half, 0.0)).margin(1e-5));
      CHECK(lane.rankings[2].loss[2] ==
            Approx(std::accumulate(attention.begin(), attention.begin() + third, 0.0)).margin(1e-5));
      CHECK(lane.rankings[2].loss[3] == Approx(all).margin(1e-5));
      CHECK(lane.least_loss[2] ==
            Approx(std::accumulate(least.begin(), least.begin() + third, 0.0)).margin(1e-5));
      if (!visible && layer == 0) CHECK(lane.least_loss[3] == Approx(1).margin(1e-5));
      for (const sim::RankingLoss& ranking : lane.rankings)
        for (std::size_t share = 0; share < 4; ++share)
          CHECK(ranking.loss[share] >= lane.least_loss[share] - 1e-12);
    }
}

TEST_CASE("a study of rankings does not depend on threads or on other rankings") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 70});
  sim::RankingStudy wanted{.rankings = {policy_ranking("random"), {sim::Ranking::By::hash, {}}}, .seed = 5};
  const auto areas = [&](unsigned threads) {
    wanted.threads = threads;
    Doubles out;
    for (const sim::LaneRankings& lane : study(trace, wanted))
      for (std::size_t r = 0; r < 2; ++r) out.push_back(lane.rankings[r].area);
    return out;
  };
  const Doubles one = areas(1);
  CHECK(areas(2) == one);
  wanted.rankings.push_back(policy_ranking("snapkv(window=4,unit=layer)"));  // lanes together, layer by layer
  CHECK(areas(1) == one);
  CHECK(areas(2) == one);
  wanted.seed = 6;
  CHECK(areas(1) != one);
}

TEST_CASE("every policy that ranks by a score is a ranking") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 60, .output_weights = true});
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (!spec.scored() || !policy::complete(spec)) continue;
    const bool streams = spec.name == "scissorhands";
    CAPTURE(spec.name);
    const auto lanes =
        study(trace, {.rankings = {policy_ranking(streams ? spec.name + "(prompt=rank)" : spec.name)}});
    for (const sim::LaneRankings& lane : lanes) {
      CHECK(lane.rankings[0].area >= 0);
      CHECK(lane.rankings[0].area <= lane.largest_area + 1e-9);
    }
  }
}

TEST_CASE("policies without scores and traces without early queries are refused") {
  const trace::MemoryTrace trace = test::random_trace({});
  CHECK_THROWS_WITH(study(trace, {}), Catch::Contains("no ranking"));
  CHECK_THROWS_WITH(study(trace, {.rankings = {policy_ranking("window")}}),
                    Catch::Contains("window: does not rank"));
  CHECK_THROWS_WITH(study(trace, {.rankings = {policy_ranking("h2o(prompt=stream)")}}),
                    Catch::Contains("token by token"));
  CHECK_THROWS_WITH(study(trace, {.rankings = {policy_ranking("h2o")}, .hash_bits = 65}),
                    Catch::Contains("not 65"));
  CHECK_THROWS_WITH(study(trace, {.rankings = {policy_ranking("critical_kv")}}),
                    Catch::Contains("--output-weights"));
  trace::Header header = trace.header();
  for (std::uint64_t token = 1; token < 33; ++token) header.query_token.push_back(token);
  CHECK_THROWS_WITH(study(trace::MemoryTrace(header), {.rankings = {policy_ranking("l2_norm")}}),
                    Catch::Contains("from position 1 on") && Catch::Contains("--queries all"));
}

}  // namespace kvsim::test_ranking_study
