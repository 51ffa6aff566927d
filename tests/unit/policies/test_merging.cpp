// Tests what merges share: the nearest token that stays, gates, weights, and the repair of lost mass.
#include <catch2/catch.hpp>
#include <cmath>
#include <list>
#include <map>
#include <numeric>

#include "policies/parts/merging/merging.hpp"

namespace kvsim::policy::test_merging {
namespace {

using Vector = std::vector<double>;
using Weights = MergeRule::Weights;
using Gate = MergeRule::Gate;
using Mass = MergeRule::Mass;

class WholePrompt final : public Prompt {
 public:
  WholePrompt(const std::vector<std::vector<float>>& keys, const std::vector<std::vector<float>>& values,
              std::size_t dim)
      : keys_(&keys), values_(&values), dim_(dim) {}
  std::size_t length() const override { return (*keys_)[0].size() / dim_; }
  MatrixView keys(int lane) const override { return view((*keys_)[static_cast<std::size_t>(lane)]); }
  MatrixView values(int lane) const override { return view((*values_)[static_cast<std::size_t>(lane)]); }

 private:
  MatrixView view(const std::vector<float>& numbers) const {
    return {numbers.data(), numbers.size() / dim_, dim_, dim_};
  }
  const std::vector<std::vector<float>>*keys_, *values_;
  std::size_t dim_;
};

/// Whole numbers from a fixed sequence: sums of few of them are exact.
struct Noise {
  std::uint32_t state = 12345;
  float operator()() {
    state = state * 1664525U + 1013904223U;
    return static_cast<float>(static_cast<int>(state >> 20) % 17 - 8) + 0.25F;
  }
};

/// A cache under a merge: some of a prompt is kept, then tokens come and go.
struct Merged {
  std::size_t lanes, dim;
  CacheRows rows;
  MergingCodec codec;

  Merged(const MergeRule& rule, const std::vector<std::vector<float>>& keys,
         const std::vector<std::vector<float>>& values, std::size_t width, const std::vector<Position>& kept)
      : lanes(keys.size()), dim(width), rows({keys.size(), width, width, 16}, 100, 1000), codec(rule) {
    const WholePrompt prompt(keys, values, dim);
    for (const Position position : kept) {
      std::vector<float> k, v;
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const auto at = static_cast<std::size_t>(position);
        k.insert(k.end(), prompt.keys(static_cast<int>(lane)).row(at).begin(),
                 prompt.keys(static_cast<int>(lane)).row(at).end());
        v.insert(v.end(), prompt.values(static_cast<int>(lane)).row(at).begin(),
                 prompt.values(static_cast<int>(lane)).row(at).end());
      }
      rows.join({}, position, {k.data(), lanes, dim, dim}, {v.data(), lanes, dim, dim});
    }
    codec.begin(prompt, rows);
  }
  void append(const std::vector<std::size_t>& victims, Position position, const std::vector<float>& k,
              const std::vector<float>& v) {
    if (!victims.empty()) codec.leave(victims, rows, {});
    codec.join(rows.join(victims, position, {k.data(), lanes, dim, dim}, {v.data(), lanes, dim, dim}), rows);
  }
};

/// One lane's softmax over key * query + bias, and the values by it.
Vector output(const CacheRows& rows, const Vector& query) {
  Vector out(rows.shape().value_dim);
  double sum = 0;
  for (std::size_t slot = 0; slot < rows.slots(); ++slot) {
    const std::span<const float> k = rows.keys(0).row(slot), v = rows.values(0).row(slot);
    double logit = static_cast<double>(rows.biases(0)[slot]);
    for (std::size_t c = 0; c < query.size(); ++c) logit += query[c] * static_cast<double>(k[c]);
    sum += std::exp(logit);
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += std::exp(logit) * static_cast<double>(v[c]);
  }
  for (double& x : out) x /= sum;
  return out;
}

// The definition, slowly: a token is a number of copies, a position, and per lane a key and a value.
struct SlowRow {
  Vector key, value;
  double tokens = 1;
};
struct SlowToken {
  Position position = 0;
  std::vector<SlowRow> lanes;
};

double cosine(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0) /
         std::sqrt(std::inner_product(a.begin(), a.end(), a.begin(), 0.0) *
                   std::inner_product(b.begin(), b.end(), b.begin(), 0.0));
}

struct SlowMerge {
  MergeRule rule;
  double tau = -2;  ///< not set yet

  void merge(const std::vector<SlowToken>& leaving, std::list<SlowToken>& staying) {
    if (leaving.empty() || staying.empty()) return;
    const std::size_t lanes = leaving[0].lanes.size();
    std::vector<std::vector<SlowToken*>> to(leaving.size());
    Vector mean_cosines;
    for (std::size_t i = 0; i < leaving.size(); ++i) {
      double sum = 0;
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        SlowToken* best = nullptr;
        double least = 0;
        for (SlowToken& token : staying) {
          const double distance = rule.nearest == MergeRule::Nearest::cosine
                                      ? -cosine(leaving[i].lanes[lane].key, token.lanes[lane].key)
                                      : std::abs(leaving[i].position - token.position);
          if (rule.nearest == MergeRule::Nearest::run &&
              !in_one_run(leaving, staying, lane, leaving[i].position, token.position))
            continue;
          if (!best || distance < least) best = &token, least = distance;
        }
        to[i].push_back(best);
        if (best) sum += cosine(leaving[i].lanes[lane].key, best->lanes[lane].key);
      }
      mean_cosines.push_back(sum / static_cast<double>(lanes));
    }
    const double mean =
        std::accumulate(mean_cosines.begin(), mean_cosines.end(), 0.0) / static_cast<double>(leaving.size());
    tau = tau == -2 ? mean : (1 - rule.rate) * tau + rule.rate * mean;
    for (std::size_t lane = 0; lane < lanes; ++lane)
      for (SlowToken& token : staying) {
        std::vector<std::size_t> joining;
        for (std::size_t i = 0; i < leaving.size(); ++i) {
          const bool passes = rule.gate == Gate::everything ||
                              (rule.gate == Gate::fixed && mean_cosines[i] >= rule.tau) ||
                              (rule.gate == Gate::mean && mean_cosines[i] >= mean) ||
                              (rule.gate == Gate::moving && mean_cosines[i] >= tau - 1e-12);
          if (passes && to[i][lane] == &token) joining.push_back(i);
        }
        if (!joining.empty()) become(token.lanes[lane], leaving, joining, lane);
      }
  }

 private:
  bool in_one_run(const std::vector<SlowToken>& leaving, const std::list<SlowToken>& staying,
                  std::size_t lane, Position a, Position b) const {
    std::map<Position, const Vector*> keys;
    for (const SlowToken& token : leaving) keys[token.position] = &token.lanes[lane].key;
    for (const SlowToken& token : staying) keys[token.position] = &token.lanes[lane].key;
    for (Position at = std::min(a, b); at < std::max(a, b); ++at)
      if (cosine(*keys.at(at), *keys.at(at + 1)) <= rule.run_above) return false;
    return true;
  }
  void become(SlowRow& own, const std::vector<SlowToken>& leaving, const std::vector<std::size_t>& joining,
              std::size_t lane) const {
    // Copy by copy: every token that a row stands for is one entry of the mean.
    std::vector<std::pair<double, const SlowRow*>> entries;
    const SlowRow before = own;
    const auto k = static_cast<double>(joining.size());
    const double own_weight = rule.weights == Weights::exponential ? std::exp(1.0)
                              : rule.weights == Weights::pivotal   ? 1 + k / 2
                                                                   : 1;
    const auto copies = [&](const SlowRow& row) {
      return rule.mass == Mass::none ? 1 : static_cast<int>(row.tokens);
    };
    for (int copy = 0; copy < copies(before); ++copy) entries.push_back({own_weight, &before});
    for (const std::size_t i : joining) {
      const SlowRow& row = leaving[i].lanes[lane];
      const double c = cosine(row.key, before.key);
      double squares = 0;
      for (std::size_t x = 0; x < row.key.size(); ++x) squares += std::pow(row.key[x] - before.key[x], 2);
      const double weight = rule.weights == Weights::exponential ? std::exp(c)
                            : rule.weights == Weights::gaussian
                                ? std::exp(-squares / (2 * rule.sigma * rule.sigma))
                            : rule.weights == Weights::pivotal ? 0.5
                            : rule.weights == Weights::cosine  ? c
                                                               : 1;
      for (int copy = 0; copy < copies(row); ++copy) entries.push_back({weight, &row});
      own.tokens += row.tokens;
    }
    double divisor = 0;
    for (const auto& [weight, row] : entries) divisor += rule.weights == Weights::cosine ? 1 : weight;
    for (auto [of, target] : {std::pair{&SlowRow::key, MergeRule::Target::keys},
                              std::pair{&SlowRow::value, MergeRule::Target::values}}) {
      if (rule.target != MergeRule::Target::both && rule.target != target) continue;
      for (std::size_t c = 0; c < (own.*of).size(); ++c) {
        (own.*of)[c] = 0;
        for (const auto& [weight, row] : entries) (own.*of)[c] += weight * (row->*of)[c] / divisor;
      }
    }
  }
};

}  // namespace

TEST_CASE("the nearest position, of two the earlier, and beyond the ends the end") {
  const std::vector<Position> staying{10, 4, 20}, leaving{0, 5, 7, 8, 15, 16, 30};
  CHECK(nearest_by_position(leaving, staying) == std::vector<std::size_t>{1, 1, 1, 0, 0, 2, 2});
}

TEST_CASE("the nearest position of the same run, or none") {
  // Runs: 0 to 2, 3, 4 to 7.
  const std::vector<float> keys{1, 0, 1, 0, 2, 0.1F, 0, 1, 1, 1, 2, 2, 3, 3, 1, 1};
  const std::vector<std::size_t> runs = runs_of({keys.data(), 8, 2, 2}, 0.9);
  CHECK(runs == std::vector<std::size_t>{0, 0, 0, 1, 2, 2, 2, 2});
  const std::vector<Position> staying{7, 4, 2}, leaving{0, 1, 3, 5, 6};
  CHECK(nearest_in_run(leaving, staying, runs) == std::vector<std::size_t>{2, 2, kNowhere, 1, 0});
}

TEST_CASE("the nearest key by cosine, of equal ones the first") {
  // Lengths do not count. A key of length 0 is as near to all.
  const std::vector<float> keys{3, 0, 0, 5, 9, 0, 0, 0, -1, -1, 2, 1};
  const MatrixView view{keys.data(), 6, 2, 2};
  const std::vector<std::size_t> staying{0, 1, 2}, leaving{5, 3, 4};
  const std::vector<Nearest> found = nearest_by_cosine(UnitRows(view, leaving), UnitRows(view, staying));
  CHECK(found[0].index == 0);
  CHECK(found[0].cosine == Approx(2 / std::sqrt(5)));
  CHECK(found[1].index == 0);
  CHECK(found[1].cosine == 0);
  CHECK(found[2].index == 0);
  CHECK(found[2].cosine == Approx(-std::sqrt(0.5)));
}

TEST_CASE("a merge, worked by hand") {
  // (2, 0) stays; (3, 4), of cosine 0.6, and (1, 0), of cosine 1, leave. The token at (0, -1) stays, too, and
  // nothing joins it.
  const std::vector<std::vector<float>> keys{{2, 0, 3, 4, 1, 0, 0, -1}}, values{{10, 0, 0, 5, 30, 0, 7, 7}};
  const auto merged = [&](const MergeRule& rule) { return Merged(rule, keys, values, 2, {0, 3}); };
  const auto check = [](const MatrixView& rows, double x, double y) {
    CHECK(rows(0, 0) == Approx(x));
    CHECK(rows(0, 1) == Approx(y).margin(1e-6));
  };
  SECTION("equal: the mean of the three") {
    const Merged all = merged({});
    check(all.rows.keys(0), 2, 4 / 3.0);
    check(all.rows.values(0), 40 / 3.0, 5 / 3.0);
    CHECK(all.rows.keys(0)(1, 1) == -1);
    CHECK(all.rows.biases(0)[0] == 0);
  }
  SECTION("cosine: the sum with 1, 0.6 and 1 over three") {
    const Merged all = merged({.weights = Weights::cosine});
    check(all.rows.keys(0), (2 + 0.6 * 3 + 1) / 3, 0.6 * 4 / 3);
    check(all.rows.values(0), 40 / 3.0, 1);
  }
  SECTION("exponential: e, exp(0.6) and e over their sum") {
    const Merged all = merged({.weights = Weights::exponential});
    const double e = std::exp(1), f = std::exp(0.6), sum = 2 * e + f;
    check(all.rows.keys(0), (2 * e + 3 * f + e) / sum, 4 * f / sum);
    check(all.rows.values(0), 40 * e / sum, 5 * f / sum);
  }
  SECTION("pivotal: first each with what stays, then all three") {
    const Merged all = merged({.weights = Weights::pivotal});
    check(all.rows.keys(0), (2 + 2.5 + 1.5) / 3, 2 / 3.0);
    check(all.rows.values(0), (10 + 5 + 20) / 3.0, 2.5 / 3);
  }
  SECTION("gaussian: at distances of the square roots of 17 and 1") {
    const Merged all = merged({.weights = Weights::gaussian, .sigma = 2});
    const double a = std::exp(-17 / 8.0), b = std::exp(-1 / 8.0), sum = 1 + a + b;
    check(all.rows.keys(0), (2 + 3 * a + b) / sum, 4 * a / sum);
    check(all.rows.values(0), (10 + 30 * b) / sum, 5 * a / sum);
  }
  SECTION("gates: the mean cosine is 0.8") {
    for (const MergeRule& rule : {MergeRule{.gate = Gate::mean}, MergeRule{.gate = Gate::moving},
                                  MergeRule{.gate = Gate::fixed, .tau = 0.7}}) {
      const Merged one = merged(rule);
      check(one.rows.keys(0), 1.5, 0);
      check(one.rows.values(0), 20, 0);
    }
    check(merged({.gate = Gate::fixed, .tau = 0.5}).rows.values(0), 40 / 3.0, 5 / 3.0);
  }
  SECTION("only keys, only values") {
    const Merged only_keys = merged({.target = MergeRule::Target::keys});
    check(only_keys.rows.keys(0), 2, 4 / 3.0);
    check(only_keys.rows.values(0), 10, 0);
    const Merged only_values = merged({.target = MergeRule::Target::values});
    check(only_values.rows.keys(0), 2, 0);
    check(only_values.rows.values(0), 40 / 3.0, 5 / 3.0);
  }
  SECTION("mass: three times the value, or log 3 on the logit; a count of 16 bits per row") {
    const Merged times = merged({.mass = Mass::count}), log = merged({.mass = Mass::log});
    check(times.rows.values(0), 40, 5);
    CHECK(times.rows.values(0)(1, 0) == 7);
    check(log.rows.values(0), 40 / 3.0, 5 / 3.0);
    CHECK(log.rows.biases(0)[0] == Approx(std::log(3)));
    CHECK(log.rows.biases(0)[1] == 0);
    CHECK(log.codec.ledger(log.rows).indices == 2 * 16);
    CHECK(log.codec.ledger(log.rows).bits() == 2 * (2 * 2 * 16 + 16));
    check(merged({.mass = Mass::count, .target = MergeRule::Target::keys}).rows.values(0), 30, 0);
  }
}

TEST_CASE("with log c, merging equal keys changes no output, whatever the values") {
  // Keys of three kinds, in a prompt of 30 of which one of each kind stays, and 40 tokens that each evict one
  // and join a kind.
  const Vector kinds[] = {{1, 2, 0.5, -1}, {-2, 0.5, 1, 0.25}, {0.5, -1, -1.5, 2}};
  const Vector query{0.3, -0.2, 0.5, 0.1};
  for (const Weights weights : {Weights::equal, Weights::cosine, Weights::exponential}) {
    Noise noise;
    std::vector<std::vector<float>> keys(1), values(1);
    Vector sums(4);
    double whole = 0;
    std::vector<float> key, value;
    const auto draw = [&](std::size_t i) {
      const Vector& kind = kinds[(i * 7 + i / 5) % 3];
      key.assign(kind.begin(), kind.end());
      value = {noise(), noise(), noise(), noise()};
      const double weight = std::exp(std::inner_product(query.begin(), query.end(), kind.begin(), 0.0));
      whole += weight;
      for (std::size_t c = 0; c < 4; ++c) sums[c] += weight * static_cast<double>(value[c]);
    };
    for (std::size_t i = 0; i < 30; ++i) {
      draw(i);
      keys[0].insert(keys[0].end(), key.begin(), key.end());
      values[0].insert(values[0].end(), value.begin(), value.end());
    }
    const auto check = [&](const Merged& cache, double error) {
      const Vector out = output(cache.rows, query);
      for (std::size_t c = 0; c < 4; ++c) CHECK(std::abs(out[c] - sums[c] / whole) <= error);
    };
    Merged log({.gate = Gate::moving, .rate = 0.5, .weights = weights, .mass = Mass::log}, keys, values, 4,
               {0, 1, 2, 3});
    Merged none({.weights = weights}, keys, values, 4, {0, 1, 2, 3});
    check(log, 1e-5);
    CHECK(std::abs(output(none.rows, query)[0] - sums[0] / whole) > 1e-2);
    for (std::size_t i = 30; i < 70; ++i) {
      draw(i);
      // What leaves is of a kind that still has another: the slot before it of the same kind, or any double.
      std::size_t victim = log.rows.slots();
      for (std::size_t a = 0; a < log.rows.slots(); ++a)
        for (std::size_t b = 0; b < a; ++b)
          if (std::abs(log.rows.keys(0)(a, 0) - log.rows.keys(0)(b, 0)) < 1e-3F) victim = a;
      const std::vector<std::size_t> victims =
          victim < log.rows.slots() ? std::vector{victim} : std::vector<std::size_t>{};
      log.append(victims, static_cast<Position>(i), key, value);
      CAPTURE(i);
      check(log, 1e-4);
    }
    CHECK(log.rows.slots() <= 5);
  }
}

TEST_CASE("a gate that lets nothing pass leaves what an eviction alone leaves, bit for bit") {
  Noise noise;
  std::vector<std::vector<float>> keys(2), values(2);
  for (std::size_t lane = 0; lane < 2; ++lane)
    for (std::size_t i = 0; i < 20 * 3; ++i) {
      keys[lane].push_back(noise());
      values[lane].push_back(noise());
    }
  for (const Mass mass : {Mass::none, Mass::count, Mass::log}) {
    Merged cache({.gate = Gate::fixed, .tau = 1.5, .mass = mass}, keys, values, 3, {0, 5, 9, 19});
    CacheRows alone({2, 3, 3, 16}, 100, 1000);
    for (const Position position : {0, 5, 9, 19}) {
      std::vector<float> k, v;
      for (std::size_t lane = 0; lane < 2; ++lane)
        for (std::size_t c = 0; c < 3; ++c) {
          k.push_back(keys[lane][static_cast<std::size_t>(position) * 3 + c]);
          v.push_back(values[lane][static_cast<std::size_t>(position) * 3 + c]);
        }
      alone.join({}, position, {k.data(), 2, 3, 3}, {v.data(), 2, 3, 3});
    }
    for (Position position = 20; position < 40; ++position) {
      const std::vector<float> k{noise(), noise(), noise(), noise(), noise(), noise()},
          v{k.rbegin(), k.rend()};
      std::vector<std::size_t> victims;
      if (position % 3 == 1) victims = {2};
      if (position % 5 == 0 && alone.slots() > 4) victims = {3, 1};
      cache.append(victims, position, k, v);
      alone.join(victims, position, {k.data(), 2, 3, 3}, {v.data(), 2, 3, 3});
      for (std::size_t lane = 0; lane < 2; ++lane)
        for (std::size_t slot = 0; slot < alone.slots(); ++slot) {
          CHECK(std::ranges::equal(cache.rows.keys(lane).row(slot), alone.keys(lane).row(slot)));
          CHECK(std::ranges::equal(cache.rows.values(lane).row(slot), alone.values(lane).row(slot)));
          CHECK(cache.rows.biases(lane)[slot] == 0);
        }
    }
  }
}

TEST_CASE("merges equal the definition, copy by copy, while tokens come and go") {
  constexpr std::size_t kDim = 5, kPrompt = 40;
  std::vector<MergeRule> rules;
  for (const Weights weights : {Weights::equal, Weights::cosine, Weights::exponential})
    for (const Gate gate : {Gate::everything, Gate::mean, Gate::moving})
      for (const Mass mass : {Mass::none, Mass::count, Mass::log})
        rules.push_back({.gate = gate, .rate = 0.3, .weights = weights, .mass = mass});
  rules.push_back({.gate = Gate::fixed, .tau = 0.5, .target = MergeRule::Target::values});
  rules.push_back({.weights = Weights::cosine, .target = MergeRule::Target::keys});
  rules.push_back({.nearest = MergeRule::Nearest::position, .mass = Mass::log});
  rules.push_back({.weights = Weights::pivotal, .decode = false});
  for (const Mass mass : {Mass::none, Mass::count})
    rules.push_back({.nearest = MergeRule::Nearest::run,
                     .run_above = -0.2,
                     .weights = Weights::gaussian,
                     .sigma = 8,
                     .mass = mass,
                     .decode = false});
  for (const std::size_t lanes : {1U, 2U})
    for (const MergeRule& rule : rules) {
      CAPTURE(lanes, static_cast<int>(rule.weights), static_cast<int>(rule.gate),
              static_cast<int>(rule.mass));
      Noise noise;
      std::vector<std::vector<float>> keys(lanes), values(lanes);
      for (std::size_t lane = 0; lane < lanes; ++lane)
        for (std::size_t i = 0; i < kPrompt * kDim; ++i) {
          keys[lane].push_back(noise());
          values[lane].push_back(noise());
        }
      std::vector<Position> kept;
      for (Position position = 1; position < static_cast<Position>(kPrompt); position += 4)
        kept.push_back(position);
      Merged fast(rule, keys, values, kDim, kept);

      SlowMerge slow{rule};
      std::list<SlowToken> staying;
      std::vector<SlowToken> leaving;
      for (std::size_t position = 0; position < kPrompt; ++position) {
        SlowToken token{static_cast<Position>(position), {}};
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          const auto part = [&](const std::vector<float>& numbers) {
            const auto first = numbers.begin() + static_cast<std::ptrdiff_t>(position * kDim);
            return Vector(first, first + kDim);
          };
          token.lanes.push_back({part(keys[lane]), part(values[lane])});
        }
        if (position % 4 == 1)
          staying.push_back(token);
        else
          leaving.push_back(token);
      }
      slow.merge(leaving, staying);
      for (Position position = kPrompt; position < static_cast<Position>(kPrompt) + 25; ++position) {
        std::vector<std::size_t> victims{static_cast<std::size_t>(position) * 3 % fast.rows.slots()};
        if (position % 4 == 0) victims.push_back((victims[0] + 2) % fast.rows.slots());
        if (position % 5 == 0 || fast.rows.slots() < 5) victims.clear();
        leaving.clear();
        for (const std::size_t victim : victims)
          staying.remove_if([&](const SlowToken& token) {
            if (token.position != fast.rows.positions()[victim]) return false;
            leaving.push_back(token);
            return true;
          });
        if (rule.decode) slow.merge(leaving, staying);
        std::vector<float> k, v;
        SlowToken token{position, {}};
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          SlowRow row;
          for (std::size_t c = 0; c < kDim; ++c) {
            k.push_back(noise());
            v.push_back(noise());
            row.key.push_back(static_cast<double>(k.back()));
            row.value.push_back(static_cast<double>(v.back()));
          }
          token.lanes.push_back(row);
        }
        staying.push_back(token);
        fast.append(victims, position, k, v);
        REQUIRE(fast.rows.slots() == staying.size());
        for (const SlowToken& expected : staying)
          for (std::size_t lane = 0; lane < lanes; ++lane) {
            const std::size_t slot = fast.rows.slot_of(expected.position);
            const SlowRow& row = expected.lanes[lane];
            CAPTURE(position, expected.position, lane);
            for (std::size_t c = 0; c < kDim; ++c) {
              CHECK(fast.rows.keys(lane)(slot, c) == Approx(row.key[c]).epsilon(1e-4).margin(1e-4));
              const double factor = rule.mass == Mass::count ? row.tokens : 1;
              CHECK(fast.rows.values(lane)(slot, c) ==
                    Approx(factor * row.value[c]).epsilon(1e-4).margin(1e-3));
            }
            const double bias = rule.mass == Mass::log ? std::log(row.tokens) : 0;
            CHECK(fast.rows.biases(lane)[slot] == Approx(bias).margin(1e-6));
          }
      }
    }
}

}  // namespace kvsim::policy::test_merging
