// Attention Matching: reference_attention chooses keys, fitted_values fits biases and values.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "tests/unit/policies/memory_calibration.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_attention_matching {

using Vector = std::vector<double>;

namespace {

/// The w of least |m w - y|^2 + 1e-6 |w|^2, by Gauss's elimination with pivots.
Vector least_squares(const std::vector<Vector>& m, const Vector& y) {
  const std::size_t n = m[0].size();
  std::vector<Vector> a(n, Vector(n + 1));
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < m.size(); ++i) {
      for (std::size_t c = 0; c < n; ++c) a[r][c] += m[i][r] * m[i][c];
      a[r][n] += m[i][r] * y[i];
    }
    a[r][r] += 1e-6;
  }
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < n; ++r)
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    std::swap(a[c], a[pivot]);
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t k = n + 1; r != c && k-- > c;) a[r][k] -= a[r][c] / a[c][c] * a[c][k];
  }
  Vector out;
  for (std::size_t c = 0; c < n; ++c) out.push_back(a[c][n] / a[c][c]);
  return out;
}

/// exp(logit) of a query of the prompt on a key of it, whichever comes first.
double weight(const RepresentedCache& cache, std::size_t i, std::size_t head, std::size_t j,
              std::size_t lane) {
  const std::size_t dim = cache.rows().shape().key_dim;
  double product = 0;
  for (std::size_t c = 0; c < dim; ++c)
    product +=
        static_cast<double>(cache.query(i, c, head)) * static_cast<double>(cache.recorded_key(j, c, lane));
  return std::exp(product / std::sqrt(static_cast<double>(dim)));
}

double value(const RepresentedCache& cache, std::size_t j, std::size_t c, std::size_t lane) {
  return static_cast<double>(cache.recorded_value(j, c, lane));
}

}  // namespace

TEST_CASE("fitted_values by hand: one token of two") {
  // Row 0 gives 3 : 1, row 1 gives 1 : 1. Of exponentials by the largest of each row token 0 has 1 and 1,
  // both have 4/3 and 2: the weight is (4/3 + 2) / 2. Outputs are 3/4 + 5/4 and 1/2 + 5/2; the value is their
  // mean.
  const auto fitted = [](const std::string& rule) {
    return RepresentedCache({.representation = rule,
                             .prompt = 2,
                             .dim = 1,
                             .length = 4,
                             .every = 2,
                             .keys = {std::log(3.0F), 0, 7, 8},
                             .values = {1, 5, 7, 8},
                             .queries = {1, 0, 0, 0}});
  };
  RepresentedCache cache = fitted("fitted_values");
  CHECK(cache.rows().biases(0)[0] == Approx(std::log(5.0 / 3)).margin(1e-5));
  CHECK(cache.value(0, 0) == Approx(2.5).margin(1e-5));
  CHECK(cache.key(0, 0) == cache.recorded_key(0, 0));
  // Clamped; a single token's value does not depend on its bias.
  CHECK(fitted("fitted_values(most=0.2)").rows().biases(0)[0] == Approx(0.2));
  CHECK(fitted("fitted_values(least=0,most=0)").rows().biases(0)[0] == 0);
  CHECK(fitted("fitted_values(least=0,most=0)").value(0, 0) == Approx(2.5).margin(1e-5));
  // The last row alone.
  CHECK(fitted("fitted_values(rows=1)").rows().biases(0)[0] == Approx(std::log(2.0)).margin(1e-5));
  CHECK(fitted("fitted_values(rows=1)").value(0, 0) == Approx(3).margin(1e-5));
  // A bias per token that is held, 16 bits wide; later tokens stay as they come.
  cache.append();
  CHECK(cache.value(2, 0) == 7);
  CHECK(cache.rows().biases(0)[1] == 0);
  CHECK(cache.ledger() == Ledger{.exact = 2 * 2 * 16, .parameters = 2 * 16});
  CHECK(cache.ledger() == cache.closed_form());
}

TEST_CASE("fitted_values: where everything is kept nothing is fitted") {
  RepresentedCache cache(
      {.representation = "fitted_values", .prompt = 20, .n_lanes = 2, .group = 2, .length = 22});
  cache.append();
  CHECK(cache.exact_keys() == 21);
  CHECK(cache.exact_values() == 21);
  for (const std::size_t lane : {0U, 1U})
    for (const float bias : cache.rows().biases(lane)) CHECK(bias == 0);
}

TEST_CASE("fitted_values of tokens that come twice is exact: log 2, and the mean of both values") {
  CacheShape shape{
      .representation = "fitted_values", .prompt = 12, .dim = 4, .group = 2, .length = 12, .every = 2};
  const RepresentedCache noise(shape);
  for (std::size_t j = 0; j < 12; ++j)
    for (std::size_t c = 0; c < 4; ++c) {
      shape.keys.push_back(noise.recorded_key(j / 2 * 2, c));
      shape.values.push_back(noise.recorded_value(j, c));
    }
  const RepresentedCache cache(shape);
  for (std::size_t slot = 0; slot < 6; ++slot) {
    CHECK(cache.rows().biases(0)[slot] == Approx(std::log(2.0)).margin(1e-3));
    for (std::size_t c = 0; c < 4; ++c)
      CHECK(static_cast<double>(cache.value(2 * slot, c)) ==
            Approx((value(cache, 2 * slot, c, 0) + value(cache, 2 * slot + 1, c, 0)) / 2).margin(1e-3));
  }
}

TEST_CASE("fitted_values agrees with its definition") {
  constexpr std::size_t kPrompt = 30;
  struct Rule {
    double least = -3, most = 3;
    std::size_t rows = kPrompt;
  };
  const std::vector<std::pair<std::string, Rule>> rules{
      {"fitted_values(steps=0)", {}},
      {"fitted_values(steps=0,rows=12)", {.rows = 12}},
      {"fitted_values(steps=0,least=-0.5,most=0.5)", {.least = -0.5, .most = 0.5}},
      {"fitted_values(least=0,most=0)", {.least = 0, .most = 0}}};
  for (const auto& [text, rule] : rules) {
    const RepresentedCache cache({.representation = text,
                                  .prompt = kPrompt,
                                  .n_lanes = 2,
                                  .dim = 3,
                                  .group = 2,
                                  .length = kPrompt,
                                  .every = 4});
    const std::size_t held = cache.rows().slots();
    for (std::size_t lane = 0; lane < 2; ++lane) {
      std::vector<Vector> part;
      Vector sums;
      std::vector<Vector> outputs(3);
      for (std::size_t head = 2 * lane; head < 2 * lane + 2; ++head)
        for (std::size_t i = 0; i < kPrompt; ++i) {
          bool taken = false;  // the last of one of `rows` even stretches
          for (std::size_t k = 1; k <= rule.rows; ++k) taken = taken || k * kPrompt / rule.rows == i + 1;
          if (!taken) continue;
          double largest = 0, sum = 0;
          Vector output(3);
          for (std::size_t j = 0; j < kPrompt; ++j) {
            const double x = weight(cache, i, head, j, lane);
            largest = std::max(largest, x);
            sum += x;
            for (std::size_t c = 0; c < 3; ++c) output[c] += x * value(cache, j, c, lane);
          }
          sums.push_back(sum / largest);
          for (std::size_t c = 0; c < 3; ++c) outputs[c].push_back(output[c] / sum);
          part.emplace_back();
          for (std::size_t s = 0; s < held; ++s)
            part.back().push_back(weight(cache, i, head, 4 * s, lane) / largest);
        }
      CHECK(part.size() == 2 * rule.rows);
      Vector weights = least_squares(part, sums);
      for (double& w : weights) w = std::clamp(w, std::exp(rule.least), std::exp(rule.most));
      for (Vector& row : part) {
        double sum = 0;
        for (std::size_t s = 0; s < held; ++s) sum += row[s] *= weights[s];
        for (double& x : row) x /= sum;
      }
      for (std::size_t c = 0; c < 3; ++c) {
        const Vector values = least_squares(part, outputs[c]);
        double as_it_was = 0, fitted = 0;
        for (std::size_t i = 0; i < part.size(); ++i) {
          double before = -outputs[c][i], now = before;
          for (std::size_t s = 0; s < held; ++s) {
            before += part[i][s] * value(cache, 4 * s, c, lane);
            now += part[i][s] * static_cast<double>(cache.value(4 * s, c, lane));
          }
          as_it_was += before * before;
          fitted += now * now;
        }
        CAPTURE(text, lane, c);
        CHECK(fitted < as_it_was);
        for (std::size_t s = 0; s < held; ++s) {
          CHECK(static_cast<double>(cache.rows().biases(lane)[s]) ==
                Approx(std::log(weights[s])).margin(1e-3));
          CHECK(static_cast<double>(cache.value(4 * s, c, lane)) == Approx(values[s]).margin(1e-3));
        }
      }
    }
  }
}

TEST_CASE("fitted_values: steps of gradient descent lessen what clamping has left") {
  const auto error = [](const std::string& rule) {
    const RepresentedCache cache(
        {.representation = rule, .prompt = 40, .dim = 3, .group = 2, .length = 40, .every = 4});
    double squares = 0;
    for (std::size_t head = 0; head < 2; ++head)
      for (std::size_t i = 0; i < 40; ++i) {
        double largest = 0, rest = 0;
        for (std::size_t j = 0; j < 40; ++j) {
          const double x = weight(cache, i, head, j, 0);
          largest = std::max(largest, x);
          rest += j % 4 == 0 ? x * (std::exp(static_cast<double>(cache.rows().biases(0)[j / 4])) - 1) : -x;
        }
        squares += rest / largest * rest / largest;
      }
    return squares;
  };
  const double clamped = error("fitted_values(steps=0,least=-0.5,most=1.5)"),
               two = error("fitted_values(least=-0.5,most=1.5)"),
               many = error("fitted_values(steps=1000,least=-0.5,most=1.5)");
  CHECK(two < clamped);
  CHECK(many < two);
}

TEST_CASE("reference_attention by hand: rows see later keys") {
  Run run = blank_run({.prompt = 2, .decode = 0, .n_lanes = 1, .group = 1});
  std::fill(run.queries[0].begin(), run.queries[0].end(), 0.0F);
  std::fill(run.keys[0].begin(), run.keys[0].end(), 0.0F);
  // Row 0 looks for key 1, which follows it: 1/4 and 3/4. Row 1 looks for none: 1/2 each.
  run.queries[0][0] = 1;
  run.keys[0][static_cast<std::size_t>(run.unit.head_dim)] = static_cast<float>(std::log(3.0) / kScale);
  const auto scores = [&](const std::string& rule) {
    const auto eviction = parse_composition(rule, builtin()).eviction.make_eviction(run.unit);
    feed_prompt(*eviction, run);
    return Vector(eviction->scores().begin(), eviction->scores().end());
  };
  CHECK(scores("reference_attention")[0] == Approx(std::sqrt((1.0 / 16 + 1.0 / 4) / 2)));
  CHECK(scores("reference_attention")[1] == Approx(std::sqrt((9.0 / 16 + 1.0 / 4) / 2)));
  CHECK_THAT(scores("reference_attention(score=max)"), Catch::Approx(Vector{0.5, 0.75}));
  CHECK_THAT(scores("reference_attention(score=mean)"), Catch::Approx(Vector{0.375, 0.625}));
  CHECK_THAT(scores("reference_attention(score=mean,rows=1)"), Catch::Approx(Vector{0.5, 0.5}));
}

TEST_CASE("reference_attention by hand: queries of a second pass take the place of the prompt's") {
  Run run = blank_run({.prompt = 2, .decode = 0, .n_lanes = 1, .group = 1});
  std::fill(run.queries[0].begin(), run.queries[0].end(), 0.0F);
  std::fill(run.keys[0].begin(), run.keys[0].end(), 0.0F);
  const auto dim = static_cast<std::size_t>(run.unit.head_dim);
  run.keys[0][dim] = static_cast<float>(std::log(3.0) / kScale);
  // Of three rows the last looks for key 1: 1/4 and 3/4. The others look for none: 1/2 each.
  std::vector<float> rows(3 * dim);
  rows[2 * dim] = 1;
  const MemoryCalibration pass({{"2/queries", {rows}}});
  run.unit.tables = &pass;
  const auto scores = [&](const std::string& rule) {
    const auto eviction = parse_composition(rule, builtin()).eviction.make_eviction(run.unit);
    feed_prompt(*eviction, run);
    return Vector(eviction->scores().begin(), eviction->scores().end());
  };
  CHECK_THAT(scores("reference_attention(queries=run,score=mean)"),
             Catch::Approx(Vector{5.0 / 12, 7.0 / 12}));
  CHECK_THAT(scores("reference_attention(queries=x.h5,score=mean,rows=1)"),
             Catch::Approx(Vector{0.25, 0.75}));
  CHECK_THAT(scores("reference_attention(score=mean)"), Catch::Approx(Vector{0.5, 0.5}));
  // The one row's sum is 4/3 of its largest: key 1 is taken, and all that is left is what key 0 has.
  CHECK(scores("matching_pursuit(queries=run,rows=1,share=0.5)") == Vector{0, 2});
}

TEST_CASE("fitted_values takes the queries of a second pass of its lane") {
  const auto shape = [](const std::string& rule, const Tables* tables) {
    return CacheShape{.representation = rule,
                      .prompt = 20,
                      .n_lanes = 2,
                      .group = 2,
                      .length = 20,
                      .every = 4,
                      .tables = tables};
  };
  const RepresentedCache own(shape("fitted_values", nullptr));
  const auto pass_of = [&](bool turned) {
    std::vector<std::vector<float>> heads(2);
    for (std::size_t lane = 0; lane < 2; ++lane)
      for (std::size_t head = 2 * lane; head < 2 * lane + 2; ++head)
        for (std::size_t i = 0; i < 20; ++i)
          for (std::size_t c = 0; c < 4; ++c)
            heads[lane].push_back(turned ? -own.query(i, c, head) : own.query(i, c, head));
    return MemoryCalibration({{"20/queries", heads}});
  };
  const MemoryCalibration same = pass_of(false), other = pass_of(true);
  const RepresentedCache repeated(shape("fitted_values(queries=run)", &same)),
      turned(shape("fitted_values(queries=run)", &other));
  for (const std::size_t lane : {0U, 1U})
    for (std::size_t slot = 0; slot < 5; ++slot) {
      CHECK(repeated.rows().biases(lane)[slot] == own.rows().biases(lane)[slot]);
      CHECK(turned.rows().biases(lane)[slot] != own.rows().biases(lane)[slot]);
      for (std::size_t c = 0; c < 4; ++c)
        CHECK(repeated.value(4 * slot, c, lane) == own.value(4 * slot, c, lane));
    }
}

TEST_CASE("reference_attention agrees with exponentials") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = random_run({.prompt = 9 + seed, .decode = 3, .n_lanes = 1, .group = 2}, seed);
    const auto dim = static_cast<std::size_t>(run.unit.head_dim);
    Vector expected(run.prompt);
    for (std::size_t head = 0; head < 2; ++head)
      for (std::size_t i = 0; i < run.prompt; ++i) {
        Vector row(run.prompt);
        double sum = 0;
        for (std::size_t j = 0; j < run.prompt; ++j) {
          double logit = 0;
          for (std::size_t c = 0; c < dim; ++c)
            logit += kScale * static_cast<double>(run.queries[head][i * dim + c]) *
                     static_cast<double>(run.keys[0][j * dim + c]);
          sum += row[j] = std::exp(logit);
        }
        for (std::size_t j = 0; j < run.prompt; ++j) expected[j] += row[j] / sum * row[j] / sum;
      }
    const auto eviction =
        parse_composition("reference_attention", builtin()).eviction.make_eviction(run.unit);
    feed_prompt(*eviction, run);
    for (std::size_t j = 0; j < run.prompt; ++j)
      CHECK(eviction->scores()[j] == Approx(std::sqrt(expected[j] / static_cast<double>(2 * run.prompt))));
  }
}

TEST_CASE("matching_pursuit by hand: what adds most to what was taken, not what is attended most") {
  // Keys 0 and 1 are alike and look for row 0, key 2 for row 2; by the largest of each row they have 1, 1,
  // 1/4 and 1/2, 1/2, 1. Sums are 9/4 and 2: products 13/4, 13/4 and 41/16. Key 0 is taken, with a weight of
  // 13/5: left are -7/20 and 7/10. Products are 0 for key 1 and 49/80 for key 2, which comes next.
  Run run = blank_run({.prompt = 3, .decode = 0, .n_lanes = 1, .group = 1});
  const auto dim = static_cast<std::size_t>(run.unit.head_dim);
  std::fill(run.queries[0].begin(), run.queries[0].end(), 0.0F);
  std::fill(run.keys[0].begin(), run.keys[0].end(), 0.0F);
  const auto logit = [](double weight) { return static_cast<float>(std::log(weight) / kScale); };
  run.queries[0][0] = 1;            // row 0
  run.queries[0][2 * dim + 1] = 1;  // row 2, which rows=2 takes beside it
  for (const std::size_t key : {0U, 1U}) run.keys[0][key * dim + 1] = logit(0.5);
  run.keys[0][2 * dim] = logit(0.25);
  const auto scores = [&](const std::string& rule) {
    const auto eviction = parse_composition(rule, builtin()).eviction.make_eviction(run.unit);
    feed_prompt(*eviction, run);
    return Vector(eviction->scores().begin(), eviction->scores().end());
  };
  CHECK(scores("matching_pursuit(share=1,rows=2)") == Vector{3, 1, 2});
  // After one turn the others follow by their products; without any, all do.
  CHECK(scores("matching_pursuit(share=0.1,rows=2)") == Vector{3, 0, 1});
  CHECK(scores("matching_pursuit(share=0,rows=2)") == Vector{1, 2, 0});
}

TEST_CASE("matching_pursuit agrees with its definition, solved anew at each turn") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = random_run({.prompt = 9 + seed, .decode = 3, .n_lanes = 1, .group = 2}, seed);
    const auto dim = static_cast<std::size_t>(run.unit.head_dim);
    std::vector<Vector> all;
    Vector sums;
    for (std::size_t head = 0; head < 2; ++head)
      for (std::size_t i = 0; i < run.prompt; ++i) {
        Vector row;
        for (std::size_t j = 0; j < run.prompt; ++j) {
          double product = 0;
          for (std::size_t c = 0; c < dim; ++c)
            product += static_cast<double>(run.queries[head][i * dim + c]) *
                       static_cast<double>(run.keys[0][j * dim + c]);
          row.push_back(std::exp(kScale * product));
        }
        const double largest = *std::max_element(row.begin(), row.end());
        double sum = 0;
        for (double& x : row) sum += x /= largest;
        all.push_back(std::move(row));
        sums.push_back(sum);
      }
    std::vector<std::size_t> taken;
    const std::size_t turns = run.prompt / 2;
    while (taken.size() < turns) {
      Vector rest = sums;
      if (!taken.empty()) {
        std::vector<Vector> part;
        for (const Vector& row : all) {
          part.emplace_back();
          for (const std::size_t key : taken) part.back().push_back(row[key]);
        }
        const Vector weights = least_squares(part, sums);
        for (std::size_t i = 0; i < rest.size(); ++i)
          for (std::size_t s = 0; s < taken.size(); ++s)
            rest[i] -= part[i][s] * std::clamp(weights[s], 1e-12, std::exp(7.0));
      }
      std::size_t best = run.prompt;
      double most = 0;
      for (std::size_t j = 0; j < run.prompt; ++j) {
        if (std::find(taken.begin(), taken.end(), j) != taken.end()) continue;
        double product = 0;
        for (std::size_t i = 0; i < rest.size(); ++i) product += all[i][j] * rest[i];
        if (best == run.prompt || product > most) best = j, most = product;
      }
      taken.push_back(best);
    }
    const auto eviction =
        parse_composition("matching_pursuit(share=1)", builtin()).eviction.make_eviction(run.unit);
    feed_prompt(*eviction, run);
    CAPTURE(seed);
    for (std::size_t turn = 0; turn < turns; ++turn)
      CHECK(eviction->scores()[taken[turn]] == static_cast<double>(run.prompt - turn));
  }
}

}  // namespace kvsim::policy::test::test_attention_matching
