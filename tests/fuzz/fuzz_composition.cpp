// Any text either is a composition or is refused as a usage error, and the canonical form of a composition
// means the same. Texts are mutations of valid ones and random bytes, from a fixed seed.
#include <catch2/catch.hpp>
#include <string>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/support/mutation.hpp"

using namespace kvsim;
using namespace kvsim::policy;
using kvsim::fuzz::Dice;

namespace {

const std::vector<std::string> kGood = {"h2o",
                                        "xkv(window=16)",
                                        "pyramidkv(beta=10)",
                                        "snapkv(window=32,pool=max:7,group=max)+pyramid(beta=20)",
                                        "random(redraw=true,sinks=4) + xkv(r_avg=0.9)",
                                        "tova(unit=lane)",
                                        "l2_norm(sinks=4,window=10,tie=newest)"};

/// Pieces of the grammar, and pieces that only careless code would mishandle.
const std::vector<std::string> kPieces = {"(",
                                          ")",
                                          "+",
                                          ",",
                                          "=",
                                          ":",
                                          " ",
                                          "\t",
                                          "-",
                                          ".",
                                          "0",
                                          "9",
                                          "1e309",
                                          "nan",
                                          "window",
                                          "pool",
                                          "avg:",
                                          "max:7",
                                          "xkv",
                                          "h2o",
                                          "uniform",
                                          "((((((((",
                                          "))))))))",
                                          "18446744073709551616",
                                          std::string(1, '\0'),
                                          "\xff",
                                          "\n",
                                          "%s",
                                          "'",
                                          "\""};

std::string mutated(Dice& dice) {
  std::string text = kGood[dice.below(kGood.size())];
  for (std::size_t n = 1 + dice.below(4); n > 0; --n) {
    const std::size_t at = dice.below(text.size() + 1);
    switch (dice.below(4)) {
      case 0:
        text.insert(at, kPieces[dice.below(kPieces.size())]);
        break;
      case 1:
        text.erase(at, 1 + dice.below(5));
        break;
      case 2:
        text = text.substr(0, at) + kGood[dice.below(kGood.size())];
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(dice.below(256));
    }
  }
  return text;
}

std::string noise(Dice& dice) {
  std::string text(dice.below(40), ' ');
  for (char& c : text) c = static_cast<char>(dice.below(256));
  return text;
}

/// Whether the text is accepted.
bool try_text(const std::string& text) {
  try {
    const Composition once = parse_composition(text, builtin());
    const Composition again = parse_composition(once.params, builtin());
    CHECK(again.params == once.params);
    CHECK(again.floor() == once.floor());
    return true;
  } catch (const Error& error) {
    CAPTURE(text);
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()).size() < 2 * text.size() + 1000);
    return false;
  }
}

}  // namespace

TEST_CASE("mutated compositions are accepted or refused") {
  Dice dice(20);
  int accepted = 0;
  constexpr int kTexts = 60000;
  for (int i = 0; i < kTexts; ++i) accepted += try_text(mutated(dice)) ? 1 : 0;
  CHECK(accepted > kTexts / 50);  // enough mutations remain legal
  CHECK(accepted < kTexts / 2);
}

TEST_CASE("noise is refused") {
  Dice dice(21);
  for (int i = 0; i < 20000; ++i) try_text(noise(dice));
}

TEST_CASE("long texts are handled quickly") {
  for (const std::size_t n : {4096U, 4097U, 10'000'000U})
    for (const char c : {'a', '(', '+', ',', '=', ' '}) CHECK_FALSE(try_text(std::string(n, c)));
}
