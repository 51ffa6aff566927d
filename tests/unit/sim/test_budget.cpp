#include <catch2/catch.hpp>
#include <numeric>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/budget.hpp"
#include "tests/support/random_trace.hpp"

namespace kvsim::test_budget {

TEST_CASE("budgets are parsed as they are typed") {
  CHECK(sim::parse_budget("128").unit == sim::Budget::Unit::tokens);
  CHECK(sim::parse_budget(" 128 ").value == 128);
  CHECK(sim::parse_budget("25%").value == Approx(0.25));
  CHECK(sim::parse_budget("64KiB").value == 65536);
  CHECK(sim::parse_budget("2K").value == 2048);
  CHECK(sim::parse_budget("2K").unit == sim::Budget::Unit::tokens);
  CHECK(sim::parse_budget("1.5 MB").value == 1500000);
  CHECK(sim::parse_budget("1GiB").text == "1GiB");
  CHECK(sim::parse_budgets("10%,64, 2MiB").size() == 3);
}

TEST_CASE("a text that is not a budget is refused with the legal forms") {
  for (const char* text :
       {"", "0", "-3", "0%", "1.5", "abc", "12x", "nan", "inf", "1e400", "10%%", ",", "99999999999"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(sim::parse_budgets(text), Catch::Contains("budget '") && Catch::Contains("25%"));
  }
}

TEST_CASE("budgets become tokens per lane") {
  // 2 layers x 2 KV heads, d = 8, f32: a token is (8 + 8) * 4 = 64 bytes in a lane, 256 in the model.
  const trace::MemoryTrace trace = test::random_trace({.prompt = 100, .decode = 3});
  const trace::Sequence sequence(trace);
  const policy::Composition h2o = policy::parse_composition("h2o", policy::builtin());
  const auto tokens = [&](const char* text) {
    return sim::budget_tokens(sim::parse_budget(text), sequence, h2o);
  };
  CHECK(tokens("7") == 7);
  CHECK(tokens("29%") == 29);  // 0.29 * 100 is 28.999... in binary
  CHECK(tokens("2560B") == 10);
  CHECK(tokens("2559B") == 9);
  CHECK(tokens("500") == 500);
  CHECK_THROWS_WITH(tokens("255B"), Catch::Contains("less than one token"));
  CHECK_THROWS_WITH(tokens("0.5%"), Catch::Contains("less than one token"));
}

TEST_CASE("a layer with a window counts no more than that") {
  // Two layers of 2 KV heads, 128 bytes a token in each: the first holds 16 of a prompt of 100.
  const trace::MemoryTrace trace = test::random_trace({.prompt = 100, .decode = 3, .layer_window = {16, -1}});
  const trace::Sequence sequence(trace);
  const auto tokens = [&](const std::string& policy, const char* text) {
    return sim::layer_budgets(sim::parse_budget(text), sequence,
                              policy::parse_composition(policy, policy::builtin()));
  };
  using Tokens = std::vector<std::size_t>;
  CHECK(tokens("h2o", "25%") == Tokens{4, 25});
  CHECK(tokens("h2o", "10") == Tokens{10, 10});
  CHECK(tokens("h2o", "40") == Tokens{40, 40});
  CHECK(tokens("h2o", "2560B") == Tokens{10, 10});
  CHECK(tokens("h2o", "7168B") == Tokens{40, 40});  // 16 tokens in the first layer, 40 in the second
  CHECK(tokens("h2o", "7167B") == Tokens{39, 39});
  CHECK_THROWS_WITH(tokens("h2o", "5%"), Catch::Contains("less than one token"));
}

TEST_CASE("a budget in bytes asks every layer what it takes") {
  // Of six layers only the fourth and the fifth are a pair. A lane's token is 2 x 8 numbers of 32 bits; in a
  // pair half of them and two lengths of 16: 512 and 288 bits, in two lanes each, 656 bytes in all layers.
  const trace::MemoryTrace trace = test::random_trace({.layers = 6, .prompt = 40, .decode = 3});
  const policy::Composition paired = policy::parse_composition("full+minicache", policy::builtin());
  const auto tokens = [&](const char* text) {
    return sim::budget_tokens(sim::parse_budget(text), trace::Sequence(trace), paired);
  };
  CHECK(tokens("6560B") == 10);
  CHECK(tokens("6559B") == 9);
}

TEST_CASE("a representation whose ledger differs by depth says so, and no other does") {
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind() != policy::Kind::representation) continue;
    CAPTURE(spec.name);
    const std::string file = policy::complete(spec) ? "" : "(file=x)";
    const policy::Part part =
        *policy::parse_composition("full+" + spec.name + file, policy::builtin()).representation;
    const auto ledger = [&](std::uint32_t layer) {
      return part.ledger({4, 64, 64, 16, layer, 12}, 1000, 10);
    };
    std::vector<std::uint32_t> layers(12);
    std::iota(layers.begin(), layers.end(), 0U);
    const bool differs =
        std::ranges::any_of(layers, [&](std::uint32_t layer) { return !(ledger(layer) == ledger(0)); });
    CHECK(differs == spec.as<policy::RepresentationRule>()->by_depth);
    policy::Ledger sum;
    for (const std::uint32_t layer : layers) sum += ledger(layer);
    CHECK(part.ledger_of_layers({4, 64, 64, 16, 5, 12}, 1000, 10) == sum);
  }
}

}  // namespace kvsim::test_budget
