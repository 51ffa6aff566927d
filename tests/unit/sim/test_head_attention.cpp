// Tests persistence of importance, head attention statistics and key-norm attention on worked traces and
// against slow references.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/inspect/head_attention.hpp"
#include "sim/inspect/layer_importance.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/slow_replay.hpp"

namespace kvsim::test_head_attention {
namespace {

std::vector<sim::LanePersistence> persistence(const trace::MemoryTrace& trace,
                                              const sim::PersistenceStudy& study) {
  Progress progress;
  auto out = sim::persistence(trace::Sequence(trace), study, progress);
  CHECK(progress.done == progress.total);
  return out;
}

sim::HeadsFound habits(const trace::MemoryTrace& trace, const sim::HeadStudy& study) {
  Progress progress;
  auto out = sim::head_attention(trace::Sequence(trace), study, progress);
  CHECK(progress.done == progress.total);
  return out;
}

/// A trace of one lane with one query head of one component, in which the attention of a row is proportional
/// to e^(q k).
trace::MemoryTrace one_lane(const std::vector<float>& queries, const std::vector<float>& keys,
                            std::uint64_t decode = 0) {
  trace::MemoryTrace trace = test::random_trace({.layers = 1,
                                                 .kv_heads = 1,
                                                 .group = 1,
                                                 .head_dim = 2,
                                                 .prompt = queries.size() - decode,
                                                 .decode = decode});
  const auto q = trace.rows(trace::Tensor::query, 0, 0), k = trace.rows(trace::Tensor::key, 0, 0);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    q[2 * i] = queries[i];
    k[2 * i] = keys[i];
    q[2 * i + 1] = k[2 * i + 1] = 0;
  }
  return trace;
}

trace::MemoryTrace without_early_queries(const trace::MemoryTrace& trace) {
  trace::Header header = trace.header();
  for (std::uint64_t token = 10; token < 33; ++token) header.query_token.push_back(token);
  return trace::MemoryTrace(header);
}

}  // namespace

TEST_CASE("persistence, worked by hand") {
  // Rows 0 ... 5. Queries of 0 attend evenly: nothing is above average. Row 2 attends position 1 (key 1)
  // almost alone, row 4 positions 1 and 4, and row 5 the keys of -1: positions 0 and 3.
  const trace::MemoryTrace trace = one_lane({0, 0, 30, 0, 30, -30}, {-1, 1, 0, -1, 1, 0});
  const auto at = [&](sim::PersistenceStudy study) {
    const auto found = persistence(trace, study)[0];
    return std::vector<std::uint64_t>{found.early, found.late, found.both};
  };
  // Early row 2: position 1. Late rows 4 and 5: positions 1 (half of the row, more than 1/5), 0 (half, 1/6).
  CHECK(at({.split = 3}) == std::vector<std::uint64_t>{1, 2, 1});
  // A half is not more than 2.5 times 1/5, but it is more than 2.5 times 1/6.
  CHECK(at({.split = 3, .times = 2.5}) == std::vector<std::uint64_t>{1, 1, 0});
  // The threshold is 1.6 thirds in every row: row 0 pays itself more, row 2 pays position 1 more; late halves
  // are less.
  CHECK(at({.split = 3, .average = sim::PersistenceStudy::Average::split, .times = 1.6}) ==
        std::vector<std::uint64_t>{2, 0, 0});
  // The one late row, 3, is even: no position is pivotal in it.
  CHECK(at({.split = 3, .late_rows = 1}) == std::vector<std::uint64_t>{1, 0, 0});
  // The row before a split at 4 is even as well; with the row before that, position 1 is pivotal.
  CHECK(at({.split = 4, .early_rows = 1}) == std::vector<std::uint64_t>{0, 3, 0});
  CHECK(at({.split = 4, .early_rows = 2}) == std::vector<std::uint64_t>{1, 3, 1});
  CHECK_THROWS_WITH(at({.split = 6}), Catch::Contains("no rows on one side"));
  CHECK_THROWS_AS(at({.split = 0}), Error);
}

TEST_CASE("persistence agrees with its definition and does not depend on threads") {
  const trace::MemoryTrace trace =
      test::random_trace({.prompt = 90, .decode = 60, .seed = 6, .layer_window = {-1, 30}});
  const trace::Sequence sequence(trace);
  sim::PersistenceStudy study{.split = 80, .early_rows = 70, .late_rows = 66, .times = 4, .threads = 1};
  study.average = GENERATE(sim::PersistenceStudy::Average::row, sim::PersistenceStudy::Average::split);
  const auto found = persistence(trace, study);
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    const test::Rows a = test::attention(sequence, lane / 2, 2 * (lane % 2)),
                     b = test::attention(sequence, lane / 2, 2 * (lane % 2) + 1);
    sim::LanePersistence expected;
    for (std::size_t j = 0; j < 80; ++j) {
      bool early = false, late = false;
      for (std::size_t t = 10; t < 146; ++t) {
        const auto sees = static_cast<double>(lane < 2 ? t + 1 : std::min<std::size_t>(t + 1, 30));
        const double average = study.average == sim::PersistenceStudy::Average::row ? 1 / sees : 1 / 80.0;
        if (t >= j && (a[t][j] + b[t][j]) / 2 > 4 * average) (t < 80 ? early : late) = true;
      }
      expected.early += early;
      expected.late += late;
      expected.both += early && late;
    }
    CHECK(found[lane].early == expected.early);
    CHECK(found[lane].late == expected.late);
    CHECK(found[lane].both == expected.both);
    CHECK(expected.both > 0);
    CHECK(expected.late > expected.both);
  }
  study.threads = 2;
  const auto again = persistence(trace, study);
  for (std::size_t lane = 0; lane < 4; ++lane) CHECK(again[lane].late == found[lane].late);
  CHECK_THROWS_WITH(
      persistence(without_early_queries(test::random_trace({})), {.split = 12, .early_rows = 3}),
      Catch::Contains("from position 10 on") && Catch::Contains("from position 9 on"));
}

TEST_CASE("head attention statistics, worked by hand") {
  // Queries of 0 attend evenly over what they see: rows 6 and 7 see 7 and 8 positions.
  const trace::MemoryTrace trace = one_lane(std::vector<float>(8, 0), {1, 2, 3, 4, 5, 6, 7, 8}, 1);
  const sim::HeadsFound even = habits(trace, {.rows = 1, .sinks = 2, .local = 3});
  CHECK(even.rows == 2);
  REQUIRE(even.heads.size() == 1);
  CHECK(even.heads[0].sink == Approx((2 / 7.0 + 2 / 8.0) / 2));
  CHECK(even.heads[0].local == Approx((3 / 7.0 + 3 / 8.0) / 2));
  CHECK(even.heads[0].entropy == Approx((std::log2(7) + 3) / 2));
  CHECK(*even.heads[0].entropy_share == Approx(1));
  CHECK(even.heads[0].distance == Approx((3 + 3.5) / 2));
  CHECK(even.heads[0].largest == Approx((1 / 7.0 + 1 / 8.0) / 2));
  SECTION("all on one position") {
    const trace::MemoryTrace sharp = one_lane({0, 0, 0, 0, 99, 99}, {9, 0, 0, 0, 0, 0}, 1);
    const sim::HeadAttention head = habits(sharp, {.rows = 1, .sinks = 1, .local = 2}).heads[0];
    CHECK(head.sink == Approx(1));
    CHECK(head.local == Approx(0).margin(1e-9));
    CHECK(head.entropy == Approx(0).margin(1e-9));
    CHECK(*head.entropy_share == Approx(0).margin(1e-9));
    CHECK(head.distance == Approx(4.5));
    CHECK(head.largest == Approx(1));
  }
  SECTION("a row that sees only itself has no share of entropy") {
    const sim::HeadAttention head = habits(one_lane({1}, {1}), {}).heads[0];
    CHECK_FALSE(head.entropy_share);
    CHECK(head.entropy == 0);
    CHECK(head.sink == 1);
    CHECK(head.local == 1);
    CHECK(head.distance == 0);
  }
  SECTION("no row") {
    CHECK_THROWS_WITH(habits(one_lane({1, 1}, {1, 1}), {.rows = 0}), Catch::Contains("no row"));
  }
  SECTION("no query") {
    CHECK_THROWS_WITH(habits(without_early_queries(test::random_trace({})), {.rows = 15}),
                      Catch::Contains("from position 9 on"));
  }
}

TEST_CASE("head attention statistics agree with their definitions and do not depend on threads") {
  const trace::MemoryTrace trace =
      test::random_trace({.prompt = 90, .decode = 50, .seed = 8, .layer_window = {20, -1}});
  const trace::Sequence sequence(trace);
  const sim::HeadsFound found = habits(trace, {.rows = 33, .sinks = 3, .local = 7, .threads = 1});
  CHECK(found.rows == 83);
  for (std::uint32_t i = 0; i < 8; ++i) {
    const test::Rows a = test::attention(sequence, i / 4, i % 4);
    double sink = 0, local = 0, entropy = 0, share = 0, distance = 0, largest = 0;
    for (std::size_t t = 57; t < 140; ++t) {
      double bits = 0;
      for (std::size_t j = 0; j <= t; ++j) {
        if (a[t][j] > 0) bits -= a[t][j] * std::log2(a[t][j]) / 83;
        sink += j < 3 ? a[t][j] / 83 : 0;
        local += t - j < 7 ? a[t][j] / 83 : 0;
        distance += static_cast<double>(t - j) * a[t][j] / 83;
      }
      entropy += bits;
      share += bits / std::log2(i < 4 ? 20.0 : static_cast<double>(t + 1));
      largest += *std::max_element(a[t].begin(), a[t].end()) / 83;
    }
    const sim::HeadAttention& head = found.heads[i];
    CHECK(head.sink == Approx(sink).margin(1e-5));
    CHECK(head.local == Approx(local).margin(1e-5));
    CHECK(head.entropy == Approx(entropy).margin(1e-4));
    CHECK(*head.entropy_share == Approx(share).margin(1e-5));
    CHECK(head.distance == Approx(distance).margin(1e-3));
    CHECK(head.largest == Approx(largest).margin(1e-5));
  }
  const sim::HeadsFound again = habits(trace, {.rows = 33, .sinks = 3, .local = 7, .threads = 2});
  for (std::size_t i = 0; i < 8; ++i) CHECK(again.heads[i].entropy == found.heads[i].entropy);
}

TEST_CASE("keys come with their norm and the attention of the rows that see them") {
  const trace::MemoryTrace trace =
      test::random_trace({.prompt = 80, .decode = 5, .seed = 9, .layer_window = {-1, 25}});
  const trace::Sequence sequence(trace);
  std::vector<sim::KeyNormAttention> lanes(4);
  Progress progress;
  sim::for_key_norm_attention(
      sequence, 2, progress,
      [&](std::size_t lane, const sim::KeyNormAttention& keys) { lanes[lane] = keys; });
  CHECK(progress.done == progress.total);
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    const test::Rows k = test::read_all(sequence, trace::Tensor::key, lane / 2, lane % 2);
    const test::Rows a = test::attention(sequence, lane / 2, 2 * (lane % 2)),
                     b = test::attention(sequence, lane / 2, 2 * (lane % 2) + 1);
    // A layer with a window of 25 holds the last 25 of the prompt.
    const std::size_t first = lane < 2 ? 0 : 55;
    REQUIRE(lanes[lane].norm.size() == 80 - first);
    for (std::size_t j = first; j < 80; ++j) {
      double sum = 0, rows = 0;
      for (std::size_t t = j; t < 80; ++t) {
        sum += (a[t][j] + b[t][j]) / 2;
        rows += 1;
      }
      CHECK(lanes[lane].attention[j - first] == Approx(sum / rows).margin(1e-5));
      CHECK(lanes[lane].norm[j - first] ==
            Approx(std::sqrt(std::inner_product(k[j].begin(), k[j].end(), k[j].begin(), 0.0))));
    }
  }
  CHECK_THROWS_WITH(
      sim::for_key_norm_attention(trace::Sequence(without_early_queries(test::random_trace({}))), 1, progress,
                                  [](std::size_t, const sim::KeyNormAttention&) {}),
      Catch::Contains("all 24 prompt tokens"));
}

}  // namespace kvsim::test_head_attention
