#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

namespace kvsim::policy::test::test_allocation_xkv {

namespace {

/// Importance of every layer, and a request for it; the prompt has 8 positions more than a layer has scores,
/// and the eviction protects these unless told otherwise.
struct Scored {
  std::vector<std::vector<float>> w;  ///< per layer
  Protection held;
  AllocationRequest request;

  Scored(std::vector<std::vector<float>> weights, std::size_t budget, std::size_t floor,
         std::size_t n_kv_heads = 1, Protection protects = {0, 8})
      : w(std::move(weights)), held(protects) {
    request = {.n_layers = w.size(),
               .n_kv_heads = n_kv_heads,
               .prompt = w[0].size() + 8,
               .budget = budget,
               .floor = floor};
    for (const auto& layer : w)
      for (std::size_t head = 0; head < n_kv_heads; ++head)
        request.profiles.emplace_back(layer.begin(), layer.end());
    request.protection = [protects](std::size_t, std::size_t) { return protects; };
  }
};

std::vector<std::vector<float>> random_weights(std::size_t n_layers, std::size_t n, std::uint64_t seed,
                                               int levels) {
  std::vector<std::vector<float>> w(n_layers, std::vector<float>(n));
  for (std::size_t i = 0; i < n_layers; ++i)
    for (std::size_t j = 0; j < n; ++j)
      w[i][j] = std::floor(static_cast<float>(levels * uniform01(combine({seed, i, j})))) /
                static_cast<float>(1 + i);
  return w;
}

double total(const std::vector<float>& w) {
  return std::accumulate(w.begin(), w.end(), 0.0,
                         [](double a, float b) { return a + static_cast<double>(b); });
}

/// The share of its importance that a layer retains with n tokens: what is protected, and the best others.
double retention(const Scored& scored, std::size_t layer, std::size_t n) {
  const std::vector<float>& w = scored.w[layer];
  const double whole = total(w);
  if (whole == 0) return 1;
  const std::size_t prompt = scored.request.prompt;
  double retained = 0;
  std::size_t held = 0;
  std::vector<double> others;
  for (std::size_t j = 0; j < prompt; ++j) {
    const double share = j < w.size() ? static_cast<double>(w[j]) / whole : 0;
    if (j < scored.held.sinks || j + scored.held.window >= prompt)
      retained += share, ++held;
    else
      others.push_back(share);
  }
  std::sort(others.begin(), others.end(), std::greater<>());
  for (std::size_t i = 0; i + held < n; ++i) retained += others[i];
  return retained;
}

/// Algorithm 1, one token per turn by looking through all layers: above the floor, with the guards of the
/// spec.
Tokens slow_xkv(const Scored& scored, double r_avg) {
  const AllocationRequest& request = scored.request;
  const std::size_t floor = std::min(request.floor, request.prompt);
  Tokens n(request.n_layers, floor);
  std::size_t left = (std::min(request.budget, request.prompt) - floor) * request.n_layers;
  while (left > 0) {
    double retained = 0, most = 0;
    std::size_t best = n.size();
    for (std::size_t i = 0; i < n.size(); ++i) {
      const double now = retention(scored, i, n[i]);
      retained += now;
      const double gain = n[i] < request.prompt ? retention(scored, i, n[i] + 1) - now : 0;
      if (gain > most + 1e-12) most = gain, best = i;
    }
    if (best == n.size() || (r_avg > 0 && retained > r_avg * static_cast<double>(n.size()) - 1e-12)) break;
    ++n[best];
    --left;
  }
  if (r_avg == 0)
    for (std::size_t i = 0; left > 0; i = (i + 1) % n.size())
      if (n[i] < request.prompt) ++n[i], --left;
  Tokens lanes;
  for (const std::size_t tokens : n) lanes.insert(lanes.end(), request.n_kv_heads, tokens);
  return lanes;
}

/// Mean over layers of the share of its importance that each retains.
double r_avg_of(const Scored& scored, const Tokens& n) {
  double sum = 0;
  for (std::size_t i = 0; i < n.size(); ++i) sum += retention(scored, i, n[i]);
  return sum / static_cast<double>(n.size());
}

/// Returns a protection of part of the floor, at either end.
Protection some_of(std::size_t floor, std::uint64_t seed) {
  const std::size_t sinks = floor * (seed % 4) / 6, window = (floor - sinks) * (seed % 3) / 2;
  return {sinks, window};
}

}  // namespace

TEST_CASE("xkv, worked by hand") {
  // Shares 0.5 0.3 0.2 and 0.9 0.1 0. Four picks: 0.9, 0.5, 0.3, 0.2.
  Scored scored({{3, 5, 2}, {18, 2, 0}}, 10, 8);
  CHECK(allocate("xkv", scored.request) == Tokens{11, 9});
  // One token per layer to give: 0.9 and 0.5.
  scored.request.budget = 9;
  CHECK(allocate("xkv", scored.request) == Tokens{9, 9});
  // Retention 0.45, 0.7, 0.85 after one, two, three picks: three reach 0.8, and the budget of four is not
  // used up.
  scored.request.budget = 10;
  CHECK(allocate("xkv(r_avg=0.8)", scored.request) == Tokens{10, 9});
  CHECK(allocate("xkv(r_avg=0.99)", scored.request) == Tokens{11, 9});
  CHECK(allocate("xkv(r_avg=0.1)", scored.request) == Tokens{8, 9});
  // Equal shares go to the first layer first.
  Scored flat({{1, 1, 1, 1}, {1, 1, 1, 1}}, 10, 8);
  CHECK(allocate("xkv", flat.request) == Tokens{12, 8});
}

TEST_CASE("xkv spreads evenly the tokens that no score claims") {
  // Floor 1 and prompt 11, nothing protected: each layer holds its best, three tokens bring something more
  // (0.3, 0.2 and 0.1), and the 15 others that there are above the floor go to both in turn: 2 + 8, 1 + 7.
  Scored scored({{3, 5, 2}, {18, 2, 0}}, 10, 1, 1, {});
  CHECK(allocate("xkv", scored.request) == Tokens{11, 9});
  // A prompt within the observation window has no scores at all.
  Scored unscored({{}, {}, {}}, 4, 2, 1, {0, 2});
  CHECK(allocate("xkv", unscored.request) == Tokens{4, 4, 4});
  CHECK(allocate("xkv(r_avg=0.5)", unscored.request) == Tokens{2, 2, 2});
}

TEST_CASE("a layer without importance claims nothing and counts as retained") {
  Scored scored({{0, 0, 0}, {1, 1, 2}}, 9, 8);
  CHECK(allocate("xkv", scored.request) == Tokens{8, 10});
  CHECK(allocate("xkv(r_avg=0.75)", scored.request) == Tokens{8, 9});
}

TEST_CASE("xkv does not count what the eviction protects anyway") {
  // Of three positions the eviction protects the last, beside the 8 without importance, so the first layer
  // can still win 0.3 and 0.1, and the second 0.25 and 0.25.
  Scored scored({{3, 1, 6}, {1, 1, 2}}, 10, 9, 1, {0, 9});
  CHECK(allocate("xkv", scored.request) == Tokens{10, 10});
  scored.request.budget = 11;
  CHECK(allocate("xkv", scored.request) == Tokens{11, 11});
  // Protected positions are retained: 0.6 and 0.5 are 0.55 on average before anything is handed out.
  CHECK(allocate("xkv(r_avg=0.55)", scored.request) == Tokens{9, 9});
  CHECK(allocate("xkv(r_avg=0.7)", scored.request) == Tokens{10, 9});
}

TEST_CASE("xkv is Algorithm 1") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::size_t n_layers = 1 + seed % 5, n = 1 + seed % 23, floor = 1 + seed % 12;
    const int levels = seed % 3 == 0 ? 3 : 100000;
    for (std::size_t budget = floor; budget < n + 10; budget += 2) {
      Scored scored(random_weights(n_layers, n, seed, levels), budget, floor, 2, some_of(floor, seed));
      CAPTURE(seed, budget);
      CHECK(allocate("xkv", scored.request) == slow_xkv(scored, 0));
      for (const char* target : {"0.3", "0.9", "1"})
        CHECK(allocate(std::string("xkv(r_avg=") + target + ")", scored.request) ==
              slow_xkv(scored, std::stod(target)));
    }
  }
}

TEST_CASE("no other split of the same total retains more on average, equal budgets least of all") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::size_t floor = 1 + seed % 11;
    for (std::size_t budget = floor; budget <= std::min<std::size_t>(floor + 3, 14); ++budget) {
      Scored scored(random_weights(3, 6, seed + 100, 1000), budget, floor, 1, some_of(floor, seed));
      const double best = r_avg_of(scored, allocate("xkv", scored.request));
      CAPTURE(seed, budget, floor);
      CHECK(r_avg_of(scored, Tokens(3, budget)) <= best + 1e-12);
      const std::size_t prompt = scored.request.prompt, all = budget * 3;
      for (std::size_t a = floor; a <= prompt; ++a)
        for (std::size_t b = floor; b <= prompt; ++b)
          if (a + b + floor <= all && all - a - b <= prompt)
            CHECK(r_avg_of(scored, {a, b, all - a - b}) <= best + 1e-12);
    }
  }
}

TEST_CASE("importance that is not a number is refused with its layer") {
  for (const float bad : {NAN, -1.0F, INFINITY}) {
    Scored scored({{1, 2}, {1, bad}}, 9, 8);
    try {
      allocate("xkv", scored.request);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      CHECK_THAT(error.what(), Catch::Contains("layer 1"));
    }
  }
}

}  // namespace kvsim::policy::test::test_allocation_xkv
