#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

using namespace kvsim;
using namespace kvsim::policy;
using namespace kvsim::policy::test;

namespace {

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
