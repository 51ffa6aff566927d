// Allocations by layer whose published form decides its own total: pyramidinfer and zipvl.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "policies/builtin.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

namespace kvsim::policy::test::test_allocation_layers {

namespace {

/// One lane per layer with importance `w`; the prompt has `floor` positions more than `w`.
AllocationRequest request_of(std::vector<std::vector<double>> w, std::size_t budget, std::size_t floor) {
  AllocationRequest request{
      .n_layers = w.size(), .n_kv_heads = 1, .prompt = w[0].size() + floor, .budget = budget, .floor = floor};
  request.profiles = std::move(w);
  return request;
}

}  // namespace

TEST_CASE("pyramidinfer(variant=official) has the lengths of the authors' code") {
  // 4,096 tokens, 32 layers, rho 0.9.
  const Tokens tokens =
      allocate("pyramidinfer(variant=official)",
               {.n_layers = 32, .n_kv_heads = 1, .prompt = 4096, .budget = 100, .floor = 1});
  CHECK(Tokens{tokens[0], tokens[1], tokens[8], tokens[16], tokens[24], tokens[31]} ==
        Tokens{4096, 4096, 3985, 3313, 2256, 1541});
  CHECK(static_cast<double>(total(tokens, 4096)) / (32 * 4096) == Approx(0.766).margin(0.0005));
}

TEST_CASE("pyramidinfer, worked by hand") {
  // Prompt 200 of which 41 are never cut, three layers, rho 0.5. Layer 0 hands on all; layer 1 the share (1 -
  // .5) * (.5 + 1) / 2 + .5 = .875 of 159: 139, so layer 2 holds 180.
  const AllocationRequest request{.n_layers = 3, .n_kv_heads = 1, .prompt = 200, .budget = 30, .floor = 1};
  CHECK(allocate("pyramidinfer(rho=0.5,variant=official)", request) == Tokens{200, 200, 180});
  // The same shape of 87 tokens above the floor: 30, 30, 27.
  CHECK(allocate("pyramidinfer(rho=0.5)", request) == Tokens{31, 31, 28});
  // A context of 64 or fewer is not cut: 0.4 of the prompt is recent, 119 are context, 0.5 of them too few.
  CHECK(allocate("pyramidinfer(rho=0,recent=0.65,variant=official)", request) == Tokens{200, 200, 200});
  // rho 1 never cuts.
  CHECK(allocate("pyramidinfer(rho=1)", request) == allocate("uniform", request));
}

TEST_CASE("pyramidinfer's layers never hold more than the one before") {
  for (const char* variant : {"exact", "official"}) {
    const Tokens tokens =
        allocate(std::string("pyramidinfer(variant=") + variant + ")",
                 {.n_layers = 24, .n_kv_heads = 1, .prompt = 3000, .budget = 500, .floor = 8});
    for (std::size_t i = 1; i < tokens.size(); ++i) CHECK(tokens[i] <= tokens[i - 1] + 1);
  }
}

TEST_CASE("zipvl, worked by hand") {
  // 0.7 of the attention takes one, two and three positions.
  const AllocationRequest request =
      request_of({{.8, .1, .1, 0, 0}, {.1, .4, .1, .4, 0}, {.3, .3, .1, .2, .1}}, 4, 2);
  CHECK(allocate("zipvl(tau=0.7,variant=official)", request) == Tokens{3, 4, 5});
  // The same shape of six tokens above the floor.
  CHECK(allocate("zipvl(tau=0.7)", request) == Tokens{3, 4, 5});
  CHECK(allocate("zipvl(tau=0,variant=official)", request) == Tokens{2, 2, 2});
  // All of the attention takes three, four and five.
  CHECK(allocate("zipvl(tau=1,variant=official)", request) == Tokens{5, 6, 7});
}

TEST_CASE("zipvl holds the share of attention it promises, with the fewest tokens") {
  const Layers layers = random_layers(4, {.prompt = 60, .decode = 0, .n_lanes = 2, .group = 2}, 12);
  const Composition zipvl =
      parse_composition("snapkv(window=8)+zipvl(rows=8,tau=0.6,variant=official)", builtin());
  const Tokens tokens = allocate(zipvl, measured_request(zipvl, layers, 20));
  for (std::size_t layer = 0; layer < 4; ++layer) {
    std::vector<double> received(52);
    for (int head = 0; head < 4; ++head)
      for (std::size_t i = 52; i < 60; ++i)
        for (std::size_t j = 0; j < 52; ++j) received[j] += static_cast<double>(layers[layer].p(head, i, j));
    std::sort(received.begin(), received.end(), std::greater<>());
    const double all = std::accumulate(received.begin(), received.end(), 0.0);
    const auto held = [&](std::size_t n) {
      return std::accumulate(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(n), 0.0) / all;
    };
    const std::size_t n = tokens[layer * 2] - 8;
    CHECK(held(n) >= 0.6 - 1e-9);
    CHECK(held(n - 1) < 0.6);
  }
}

}  // namespace kvsim::policy::test::test_allocation_layers
