#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

using namespace kvsim;
using namespace kvsim::policy;
using Tokens = std::vector<std::size_t>;

namespace {

Tokens allocate(const std::string& allocation, const AllocationRequest& request) {
  const Composition composition = parse_composition("h2o+" + allocation, builtin());
  return composition.allocation.spec->make_allocation(composition.allocation.params)->allocate(request);
}

std::size_t sum(const Tokens& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), std::size_t{0});
}

/// Importance of every layer, and a request for it; the prompt has 8 positions more than a layer has scores.
struct Scored {
  std::vector<std::vector<float>> w;  ///< per layer
  AllocationRequest request;

  Scored(std::vector<std::vector<float>> weights, std::size_t budget, std::size_t floor,
         std::size_t n_kv_heads = 1)
      : w(std::move(weights)) {
    request = {.n_layers = w.size(),
               .n_kv_heads = n_kv_heads,
               .prompt = w[0].size() + 8,
               .budget = budget,
               .floor = floor};
    for (const auto& layer : w)
      for (std::size_t head = 0; head < n_kv_heads; ++head)
        request.profiles.emplace_back(layer.begin(), layer.end());
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

/// Algorithm 1 as printed, one token per turn by looking through all layers, with the guards of the spec.
Tokens slow_xkv(const Scored& scored, double r_avg) {
  const AllocationRequest& request = scored.request;
  const std::size_t floor = std::min(request.floor, request.prompt), most = request.prompt - floor;
  std::vector<std::vector<double>> share;
  double retained = 0;
  for (const std::vector<float>& layer : scored.w) {
    const double whole = total(layer);
    if (whole == 0) retained += 1;
    std::vector<double> sorted;
    for (const float w : layer) sorted.push_back(whole > 0 ? static_cast<double>(w) / whole : 0.0);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    share.push_back(sorted);
  }
  Tokens n(request.n_layers), capacity(request.n_layers);
  for (std::size_t i = 0; i < n.size(); ++i) capacity[i] = std::min(share[i].size(), most);
  std::size_t left = (std::min(request.budget, request.prompt) - floor) * request.n_layers;
  while (left > 0 && (r_avg == 0 || retained < r_avg * static_cast<double>(request.n_layers))) {
    int best = -1;
    for (std::size_t i = 0; i < n.size(); ++i)
      if (n[i] < capacity[i] &&
          (best < 0 ||
           share[i][n[i]] > share[static_cast<std::size_t>(best)][n[static_cast<std::size_t>(best)]]))
        best = static_cast<int>(i);
    if (best < 0) break;
    const auto layer = static_cast<std::size_t>(best);
    if (r_avg > 0 && share[layer][n[layer]] == 0) break;
    retained += share[layer][n[layer]++];
    --left;
  }
  if (r_avg == 0)
    for (std::size_t i = 0; left > 0; i = (i + 1) % n.size())
      if (n[i] < most) ++n[i], --left;
  Tokens lanes;
  for (const std::size_t tokens : n) lanes.insert(lanes.end(), request.n_kv_heads, floor + tokens);
  return lanes;
}

/// Mean over layers of the share of w that its n largest hold.
double r_avg_of(const Scored& scored, const Tokens& n) {
  double sum_r = 0;
  for (std::size_t i = 0; i < n.size(); ++i) {
    std::vector<float> w = scored.w[i];
    std::sort(w.begin(), w.end(), std::greater<>());
    w.resize(std::min(n[i], w.size()));
    sum_r += total(w) / total(scored.w[i]);
  }
  return sum_r / static_cast<double>(n.size());
}

}  // namespace

TEST_CASE("uniform gives every lane the budget, the prompt at most") {
  CHECK(allocate("uniform", {.n_layers = 2, .n_kv_heads = 3, .prompt = 50, .budget = 7, .floor = 1}) ==
        Tokens(6, 7));
  CHECK(allocate("uniform", {.n_layers = 2, .n_kv_heads = 1, .prompt = 5, .budget = 7, .floor = 6}) ==
        Tokens(2, 5));
}

TEST_CASE("a budget below the floor is refused by every allocation") {
  for (const PolicySpec& spec : builtin().policies()) {
    if (spec.kind != Kind::allocation) continue;
    Scored scored({{1, 2}, {3, 4}}, 3, 4);
    CHECK_THROWS_WITH(allocate(spec.name, scored.request),
                      Catch::Contains("3 tokens") && Catch::Contains("4"));
  }
}

TEST_CASE("every allocation spends the budget exactly and stays between floor and prompt") {
  for (const PolicySpec& spec : builtin().policies()) {
    if (spec.kind != Kind::allocation) continue;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      const std::size_t n_layers = 1 + seed % 6, n_kv_heads = 1 + seed % 3, n = seed % 20, floor = seed % 11;
      const int levels = seed % 4 == 0 ? 1 : 1000;  // one level: all importance is zero
      for (const std::size_t budget : {floor, floor + 1, floor + 3, n + 7, n + 8, n + 9}) {
        if (budget < floor) continue;
        Scored scored(random_weights(n_layers, n, seed, levels), budget, floor, n_kv_heads);
        const Tokens tokens = allocate(spec.name, scored.request);
        CAPTURE(spec.name, seed, budget, floor, n);
        REQUIRE(tokens.size() == n_layers * n_kv_heads);
        CHECK(sum(tokens) == std::min(budget, n + 8) * tokens.size());
        for (const std::size_t lane : tokens) {
          CHECK(lane >= std::min(floor, n + 8));
          CHECK(lane <= n + 8);
        }
      }
    }
  }
}

TEST_CASE("pyramid, worked by hand") {
  AllocationRequest request{.n_layers = 3, .n_kv_heads = 1, .prompt = 100, .budget = 20, .floor = 0};
  // Mean 20, last 20/20 = 1, first 39.
  CHECK(allocate("pyramid", request) == Tokens{39, 20, 1});
  // beta 10: last 2, first 38. beta 1 is flat.
  CHECK(allocate("pyramid(beta=10)", request) == Tokens{38, 20, 2});
  CHECK(allocate("pyramid(beta=1)", request) == Tokens{20, 20, 20});
  // A floor of 8 leaves a mean of 12: 23.4, 12, 0.6. Whole parts 23, 12, 0; the missing one goes to .6.
  request.floor = 8;
  CHECK(allocate("pyramid", request) == Tokens{31, 20, 9});
  // A prompt of 30 caps the first layer, and the line through the same mean is flatter: 22, 12, 2 above 8.
  request.prompt = 30;
  CHECK(allocate("pyramid", request) == Tokens{30, 20, 10});
  // A single layer gets all, and every KV head the same.
  request = {.n_layers = 1, .n_kv_heads = 2, .prompt = 100, .budget = 20, .floor = 8};
  CHECK(allocate("pyramid", request) == Tokens{20, 20});
}

TEST_CASE("pyramid has kvpress's budgets where the two rules agree") {
  // 32 layers, no floor, half and a quarter of 8,192; layers 0, 1, 15, 16, 31 of kvpress's PyramidKVPress
  // (v0.5.4).
  AllocationRequest request{.n_layers = 32, .n_kv_heads = 1, .prompt = 8192, .budget = 4096, .floor = 0};
  Tokens tokens = allocate("pyramid", request);
  CHECK(Tokens{tokens[0], tokens[1], tokens[15], tokens[16], tokens[31]} ==
        Tokens{7987, 7736, 4222, 3970, 205});
  request.budget = 2048;
  tokens = allocate("pyramid", request);
  CHECK(Tokens{tokens[0], tokens[1], tokens[15], tokens[16], tokens[31]} ==
        Tokens{3994, 3868, 2111, 1985, 102});
}

TEST_CASE("pyramid never rises with depth") {
  for (std::size_t budget = 8; budget <= 200; budget += 3) {
    const Tokens tokens =
        allocate("pyramid", {.n_layers = 13, .n_kv_heads = 1, .prompt = 200, .budget = budget, .floor = 8});
    for (std::size_t i = 1; i < tokens.size(); ++i)
      CHECK(tokens[i] <= tokens[i - 1] + 1);  // rounding may add one
    CHECK(sum(tokens) == budget * 13);
  }
}

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

TEST_CASE("xkv spreads evenly what no score can claim") {
  // Floor 1 and prompt 11: three scored positions per layer, nine tokens per layer above the floor.
  Scored scored({{3, 5, 2}, {18, 2, 0}}, 10, 1);
  CHECK(allocate("xkv", scored.request) == Tokens{10, 10});
  // A prompt within the observation window has no scores at all.
  Scored unscored({{}, {}, {}}, 4, 2);
  CHECK(allocate("xkv", unscored.request) == Tokens{4, 4, 4});
  CHECK(allocate("xkv(r_avg=0.5)", unscored.request) == Tokens{2, 2, 2});
}

TEST_CASE("a layer without importance claims nothing and counts as retained") {
  Scored scored({{0, 0, 0}, {1, 1, 2}}, 9, 8);
  CHECK(allocate("xkv", scored.request) == Tokens{8, 10});
  CHECK(allocate("xkv(r_avg=0.75)", scored.request) == Tokens{8, 9});
}

TEST_CASE("xkv is Algorithm 1") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::size_t n_layers = 1 + seed % 5, n = 1 + seed % 23, floor = seed % 12;
    const int levels = seed % 3 == 0 ? 3 : 100000;
    for (std::size_t budget = floor; budget < n + 10; budget += 2) {
      Scored scored(random_weights(n_layers, n, seed, levels), budget, floor, 2);
      CAPTURE(seed, budget);
      CHECK(allocate("xkv", scored.request) == slow_xkv(scored, 0));
      for (const char* target : {"0.3", "0.9", "1"})
        CHECK(allocate(std::string("xkv(r_avg=") + target + ")", scored.request) ==
              slow_xkv(scored, std::stod(target)));
    }
  }
}

TEST_CASE("no other split of the same total retains more on average") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::size_t budget = 9; budget <= 12; ++budget) {
      Scored scored(random_weights(3, 6, seed + 100, 1000), budget, 8);
      Tokens n = allocate("xkv", scored.request);
      for (std::size_t& tokens : n) tokens -= 8;
      const double best = r_avg_of(scored, n);
      const std::size_t all = (budget - 8) * 3;
      for (std::size_t a = 0; a <= all; ++a)
        for (std::size_t b = 0; a + b <= all; ++b)
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
