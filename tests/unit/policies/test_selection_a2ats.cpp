// A2ATS: codes of keys before rotation, in the metric of the queries.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rotary.hpp"
#include "tests/unit/policies/memory_calibration.hpp"
#include "tests/unit/policies/selection_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_selection_a2ats {

namespace {

const std::vector<float> kFrequencies{1.0F, 0.3F, 0.05F};

/// A vector at one position as at another, in double precision: channels c and c + 3 turn together.
std::vector<double> turned(std::vector<double> x, double from, double to) {
  for (std::size_t c = 0; c < 3; ++c) {
    const double angle = (to - from) * static_cast<double>(kFrequencies[c]), a = x[c], b = x[c + 3];
    x[c] = a * std::cos(angle) - b * std::sin(angle);
    x[c + 3] = a * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

/// What a lane reads by the tables of a file: channels are 6, the first key head of a group of `group`.
std::set<Position> slow_choice(const SelectedCache& cache, const MemoryCalibration& file, std::size_t lane,
                               std::size_t group, std::size_t count, double offset, Position window,
                               Position sinks) {
  const std::vector<float>&factor = file.tables().at("factor")[lane],
        &centres = file.tables().at("centres")[lane];
  const std::size_t n = centres.size() / 6;
  // Centres before the factor: c L = a.
  std::vector<std::vector<double>> plain(n, std::vector<double>(6));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 6; c-- > 0;) {
      double rest = static_cast<double>(centres[i * 6 + c]);
      for (std::size_t r = c + 1; r < 6; ++r) rest -= plain[i][r] * static_cast<double>(factor[r * 6 + c]);
      plain[i][c] = rest / static_cast<double>(factor[c * 6 + c]);
    }
  const auto own = static_cast<Position>(cache.position());
  std::set<Position> out{own};
  std::vector<Position> candidates;
  std::vector<std::size_t> codes;
  for (const Position position : cache.slots()) {
    if (position < sinks || own - position < window) {
      out.insert(position);
      continue;
    }
    std::vector<double> key;
    for (std::size_t c = 0; c < 6; ++c)
      key.push_back(static_cast<double>(cache.key(static_cast<std::size_t>(position), c, lane)));
    key = turned(key, position, 0);
    std::size_t best = 0;
    double least = 1e300;
    for (std::size_t i = 0; i < n; ++i) {
      double error = 0;
      for (std::size_t c = 0; c < 6; ++c) {
        double sum = 0;
        for (std::size_t r = 0; r < 6; ++r)
          sum += (key[r] - plain[i][r]) * static_cast<double>(factor[r * 6 + c]);
        error += sum * sum;
      }
      if (error < least) {
        least = error;
        best = i;
      }
    }
    candidates.push_back(position);
    codes.push_back(best);
  }
  for (std::size_t head = lane * group; head < (lane + 1) * group; ++head) {
    std::vector<double> query;
    for (std::size_t c = 0; c < 6; ++c)
      query.push_back(static_cast<double>(cache.query(cache.position(), c, head)));
    query = turned(query, own, offset);
    std::vector<std::pair<double, std::size_t>> scores;  // of equal codes the later slot
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      double score = 0;
      for (std::size_t c = 0; c < 6; ++c) score += query[c] * as_half(plain[codes[i]][c]);
      scores.emplace_back(score, i);
    }
    std::sort(scores.rbegin(), scores.rend());
    for (std::size_t i = 0; i < count; ++i) out.insert(candidates[scores[i].second]);
  }
  return out;
}

}  // namespace

TEST_CASE("a2ats: a worked example", "[a2ats]") {
  // The factor is twice the identity, so the centres (2, 0), (0, 8) and (10, 2) are of keys (1, 0), (0, 4)
  // and (5, 1): codes 0, 1, 2, 1, 0 under which q = (1, 2) has 1, 8, 7, 8, 1. Exact logits are 2, 7, 9, 9, 1.
  const MemoryCalibration file(
      MemoryCalibration::Heads{{"factor", {{2, 0, 0, 2}}}, {"centres", {{2, 0, 0, 8, 10, 2}}}});
  SelectedShape shape{.selection = "a2ats(read=2,centres=3,window=1,sinks=0,file=x)",
                      .prompt = 5,
                      .dim = 2,
                      .length = 6,
                      .tables = &file};
  shape.keys = {2, 0, -1, 4, 5, 2, 1, 4, 1, 0, 0, 0};
  shape.queries.assign(12, 0);
  shape.queries[10] = 1;
  shape.queries[11] = 2;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{1, 3, 5});
  // Six codes of two bits, three centres of two 16-bit numbers, and the factor.
  CHECK(cache.index_bits() == 6 * 2 + 3 * 2 * 16 + 4 * 16);
  CHECK(cache.index_bits_read() == 5 * 2 + 3 * 2 * 16);
}

TEST_CASE("a2ats: what is read follows from the tables", "[a2ats]") {
  const MemoryCalibration file(
      "a2ats(centres=20,offset=50)",
      {.runs = 2, .tokens = 40, .n_lanes = 2, .dim = 6, .group = 3, .inv_freq = kFrequencies});
  for (const std::uint64_t seed : {1, 2}) {
    SelectedCache cache({.selection = "a2ats(read=6,centres=20,offset=50,window=9,sinks=4,file=x)",
                         .prompt = 90,
                         .n_lanes = 2,
                         .dim = 6,
                         .group = 3,
                         .seed = seed,
                         .tables = &file,
                         .inv_freq = kFrequencies});
    for (int step = 0; step < 30; ++step) {
      std::vector<std::size_t> victims;
      if (step >= 10) victims = {(static_cast<std::size_t>(step) * 7) % cache.slots().size()};
      if (step >= 20) victims.push_back((victims[0] + 5) % cache.slots().size());
      cache.append(victims);
      for (std::size_t lane = 0; lane < 2; ++lane) {
        const std::set<Position> expected = slow_choice(cache, file, lane, 3, 6, 50, 9, 4);
        for (std::size_t g = 0; g < 3; ++g) CHECK(cache.read(lane * 3 + g) == expected);
      }
    }
  }
}

TEST_CASE("a2ats: the factor measures the error of logits", "[a2ats]") {
  // Sum over the turned queries of (q . d)^2 is |d L|^2, but for one number that divides all.
  const MemoryCalibration file("a2ats(centres=20,offset=50)",
                               {.runs = 1, .tokens = 40, .dim = 6, .group = 2, .inv_freq = kFrequencies});
  const std::vector<float>& factor = file.tables().at("factor")[0];
  double ratio = 0;
  for (std::size_t trial = 0; trial < 5; ++trial) {
    std::vector<double> d;
    for (std::size_t c = 0; c < 6; ++c) d.push_back(std::sin(static_cast<double>(trial * 6 + c * c + 1)));
    double errors = 0, length = 0;
    for (std::size_t token = 0; token < 40; ++token)
      for (std::size_t head = 0; head < 2; ++head) {
        std::vector<double> query;
        for (std::size_t c = 0; c < 6; ++c)
          query.push_back(static_cast<double>(file.query(0, token, head, c)));
        query = turned(query, static_cast<double>(token), 50);
        double product = 0;
        for (std::size_t c = 0; c < 6; ++c) product += query[c] * d[c];
        errors += product * product;
      }
    for (std::size_t c = 0; c < 6; ++c) {
      double sum = 0;
      for (std::size_t r = 0; r < 6; ++r) sum += d[r] * static_cast<double>(factor[r * 6 + c]);
      length += sum * sum;
    }
    if (trial == 0) ratio = errors / length;
    CHECK(errors / length == Approx(ratio).epsilon(1e-4));
  }
  CHECK(ratio > 1);
}

TEST_CASE("a2ats: limits", "[a2ats]") {
  SelectedCache all({.selection = "a2ats(read=100%,centres=8)", .prompt = 100});
  all.append();
  CHECK(all.read().size() == 101);
  CHECK(all.index_bits_read() == 0);
  // As many centres as the prompt has tokens, no rotation: the highest logits, and the newest.
  SelectedCache exact({.selection = "a2ats(read=9,window=1,sinks=0)", .prompt = 64, .dim = 8});
  exact.append();
  std::vector<Position> order;
  for (Position position = 0; position < 64; ++position) order.push_back(position);
  std::sort(order.begin(), order.end(), [&](Position a, Position b) {
    return exact.logit(64, static_cast<std::size_t>(a)) > exact.logit(64, static_cast<std::size_t>(b));
  });
  std::set<Position> expected(order.begin(), order.begin() + 9);
  expected.insert(64);
  CHECK(exact.read() == expected);
  CHECK_THROWS_AS(MemoryCalibration("a2ats", {.runs = 2, .tokens = 40}), Error);
}

TEST_CASE("a2ats: 12 bits per token and KV head, centres of 256 MiB in all", "[a2ats]") {
  const CostShape shape{.n_layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .value_dim = 128};
  const Part part = *parse_composition("full+a2ats", builtin()).selection;
  const double factors = 8 * 128 * 128 * 2, centres = 256 * 1024 * 1024 / 32;
  const ReadCount count = part.reads(shape, 0, 100000);
  CHECK(count.index_bytes == 8 * 100000 * 1.5 + centres + factors);
  CHECK(count.lane_tokens == 4 * 3000 + 72);
  // One query head per KV head: exactly as said.
  SelectedCache cache(
      {.selection = "a2ats(read=13,centres=16,window=10,sinks=3)", .prompt = 80, .n_lanes = 2});
  cache.append();
  const CostShape small{.n_layers = 9, .query_heads = 2, .kv_heads = 2, .head_dim = 4, .value_dim = 4};
  const ReadCount said = cache.part().reads(small, 5, 81);
  CHECK(static_cast<double>(cache.read(1).size()) == said.head_tokens);
  CHECK(static_cast<double>(cache.index_bits()) == 8 * said.index_bytes);
  CHECK(static_cast<double>(cache.index_bits_read()) == 8 * said.index_bytes_read);
}

}  // namespace kvsim::policy::test::test_selection_a2ats
