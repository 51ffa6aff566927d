#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

namespace kvsim::policy::test::test_allocation_pyramid {

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
  // A single layer gets the whole budget, and every KV head the same.
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
    CHECK(total(tokens, 200) == budget * 13);
  }
}

namespace {

/// 32 layers; an eviction that always keeps `window`.
AllocationRequest of_32(std::size_t prompt, std::size_t budget, std::size_t window) {
  return {.n_layers = 32, .n_kv_heads = 1, .prompt = prompt, .budget = budget, .floor = window};
}

Tokens some(const Tokens& tokens, std::initializer_list<std::size_t> layers) {
  Tokens out;
  for (const std::size_t layer : layers) out.push_back(tokens[layer]);
  return out;
}

}  // namespace

TEST_CASE("pyramid(variant=kvpress) has the budgets of kvpress's PyramidKVPress") {
  // v0.5.4, beta 20, window 64, 32 layers; the budget is the prompt times 1 - compression_ratio.
  struct Golden {
    std::size_t prompt, budget;
    Tokens layers;  // 0, 1, 15, 16, 31
    std::size_t sum;
  };
  const std::vector<Golden> golden = {
      {4096, 3072, {4032, 3970, 3103, 3041, 2112}, 98304}, {4096, 2048, {3994, 3868, 2111, 1985, 102}, 65536},
      {4096, 1024, {1024, 1024, 1024, 1024, 1024}, 32768}, {8192, 4096, {7987, 7736, 4222, 3970, 205}, 0},
      {8192, 2048, {3994, 3868, 2111, 1985, 102}, 0},      {1024, 512, {960, 931, 526, 498, 64}, 0}};
  for (const Golden& g : golden) {
    CAPTURE(g.prompt, g.budget);
    const Tokens tokens = allocate("pyramid(variant=kvpress)", of_32(g.prompt, g.budget, 64));
    CHECK(some(tokens, {0, 1, 15, 16, 31}) == g.layers);
    if (g.sum > 0) CHECK(total(tokens, g.prompt) == g.sum);
  }
  // A single layer has no line: its budget is the budget.
  CHECK(allocate("pyramid(variant=kvpress)",
                 {.n_layers = 1, .n_kv_heads = 2, .prompt = 99, .budget = 40, .floor = 8}) == Tokens{40, 40});
}

TEST_CASE("pyramid(variant=kvpress) spends the budget to a thousandth") {
  for (const std::size_t n_layers : {32U, 64U, 128U})
    for (const double kept : {0.9, 0.75, 0.7, 0.5, 0.4, 0.25, 0.2})
      for (const std::size_t prompt : {1024U, 2787U, 4096U, 6591U, 8192U}) {
        const auto budget = static_cast<std::size_t>(kept * static_cast<double>(prompt));
        const Tokens tokens = allocate(
            "pyramid(variant=kvpress)",
            {.n_layers = n_layers, .n_kv_heads = 1, .prompt = prompt, .budget = budget, .floor = 64});
        const double mean = static_cast<double>(total(tokens, prompt)) / static_cast<double>(n_layers);
        CHECK(std::abs(mean / static_cast<double>(budget) - 1) < 1e-3);
      }
}

TEST_CASE("pyramid(variant=factory) has the budgets of KVCache-Factory, overspending included") {
  // Window 8, beta 20, 32 layers, a long prompt. 128: 6 and 234 above the window, whole steps of 228 / 31
  // = 7.
  Tokens tokens = allocate("pyramid(variant=factory)", of_32(8192, 128, 8));
  CHECK(some(tokens, {0, 1, 16, 31}) == Tokens{242, 235, 130, 25});
  CHECK(total(tokens, 8192) == 4272);  // of 4096
  tokens = allocate("pyramid(variant=factory)", of_32(8192, 512, 8));
  CHECK(some(tokens, {0, 1, 16, 31}) == Tokens{991, 961, 511, 61});
  CHECK(static_cast<double>(total(tokens, 8192)) / (512 * 32) == Approx(1.027).margin(0.0005));
  tokens = allocate("pyramid(variant=factory)", of_32(8192, 2048, 8));
  CHECK(some(tokens, {0, 1, 16, 31}) == Tokens{3986, 3861, 1986, 111});
  CHECK(static_cast<double>(total(tokens, 8192)) / (2048 * 32) == Approx(1.0002).margin(0.00005));
}

TEST_CASE("pyramid(variant=factory) is flat until the prompt has twice the budget above the window") {
  // 2 * (128 - 8) = 240.
  CHECK(allocate("pyramid(variant=factory)", of_32(239, 128, 8)) == Tokens(32, 128));
  const Tokens tokens = allocate("pyramid(variant=factory)", of_32(240, 128, 8));
  // The first layer would get 234 + 8 of 240: at most 232 above the window, so the last gets 8 and 8.
  CHECK(some(tokens, {0, 31}) == Tokens{240, 240 - 31 * 7});
}

}  // namespace kvsim::policy::test::test_allocation_pyramid
