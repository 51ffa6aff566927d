// Tests codes in groups with exact windows: kivi and scalar.
#include <catch2/catch.hpp>
#include <regex>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_kivi {

using Lane = RepresentedCache;

namespace {

constexpr std::size_t kDim = 4;

}  // namespace

TEST_CASE("kivi's windows: keys wait for each other, values slide") {
  // R = 8. After n tokens n mod 8 keys are exact, and the latest min(n, 8) values.
  for (const std::size_t prompt : {0U, 1U, 7U, 8U, 9U, 16U}) {
    Lane lane({.representation = "kivi(bits=2,group=4,residual=8)", .prompt = prompt});
    for (std::size_t n = prompt; n <= 40; ++n) {
      CAPTURE(prompt, n);
      CHECK(lane.exact_keys() == n % 8);
      CHECK(lane.exact_values() == std::min<std::size_t>(n, 8));
      CHECK(lane.ledger() == lane.closed_form());
      lane.append();
    }
  }
}

TEST_CASE("kivi's bits per number, windows included") {
  // Groups of 32, residual 128, 2 bits: 3 bits in a group, and 16 for 128 values.
  const Part kivi = *parse_composition("full+kivi", builtin()).representation;
  const StorageShape shape{32, 128, 128, 16};
  const auto bits = [&](std::uint64_t tokens) {
    return static_cast<double>(kivi.ledger(shape, tokens, 0).bits()) / static_cast<double>(tokens * 32 * 256);
  };
  CHECK(bits(2048) == Approx(3.40625));
  CHECK(bits(8192) == Approx(3.1015625));
  CHECK(bits(16384) == Approx(3.05078125));
  CHECK(bits(32768) == Approx(3.025390625));
  CHECK(bits(127) == 16);
}

TEST_CASE("a key's channel is coded over the tokens of its group") {
  // One group of two tokens per channel and one bit: the least and the largest of the two come back.
  Lane lane({.representation = "kivi(bits=1,group=2,residual=2)", .prompt = 2});
  for (std::size_t channel = 0; channel < kDim; ++channel) {
    const float a = lane.recorded_key(0, channel), b = lane.recorded_key(1, channel);
    CHECK(lane.key(0, channel) == Approx(a).margin(2e-3));
    CHECK(lane.key(1, channel) == Approx(b).margin(4e-3));
  }
}

TEST_CASE("a coded token that leaves keeps its group's scale alive until the last is gone") {
  Lane lane({.representation = "scalar(bits=4,group=4,axis=channel)", .prompt = 8});
  const std::uint64_t group = kDim * 32 * 2, token = kDim * 4 * 2, exact = kDim * 16 * 2;
  CHECK(lane.ledger().bits() == 8 * token + 2 * group);
  // Position 0 leaves from slot 0, and so do 1, 2 and 3, each for a new exact token; the first group is gone
  // then.
  lane.append({0});
  CHECK(lane.ledger().bits() == 7 * token + 2 * group + exact);
  lane.append({1});
  lane.append({2});
  CHECK(lane.ledger().bits() == 5 * token + 2 * group + 3 * exact);
  // With the fourth, the new tokens are a group.
  lane.append({3});
  CHECK(lane.ledger().bits() == 8 * token + 2 * group);
}

TEST_CASE("an exact token that leaves waits no longer") {
  Lane lane({.representation = "scalar(bits=4,group=4,axis=channel)", .prompt = 2});
  lane.append({0});  // positions 1, 2 wait
  CHECK(lane.exact_keys() == 2);
  lane.append();
  CHECK(lane.exact_keys() == 3);
  lane.append();
  CHECK(lane.exact_keys() == 0);
}

TEST_CASE("16 bits store every number as it comes") {
  for (const char* text : {"scalar(bits=16)", "kivi(bits=16)", "scalar(bits=16,axis=channel)"}) {
    Lane lane({.representation = text, .prompt = 200});
    for (int i = 0; i < 100; ++i) lane.append();
    CHECK(lane.exact_keys() == 300);
    CHECK(lane.exact_values() == 300);
    CHECK(lane.ledger() == exact_ledger({1, kDim, kDim, 16}, 300));
  }
}

TEST_CASE("groups that do not divide are refused, with what to do") {
  const auto refuse = [](const std::string& text, const std::string& words) {
    try {
      Lane lane({.representation = text, .prompt = 1});
      FAIL(text);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CAPTURE(std::string(error.what()));
      CHECK(std::string(error.what()).find(words) != std::string::npos);
    }
  };
  refuse("kivi(group=32,residual=100)", "multiple of the group");
  refuse("scalar(group=3)", "do not divide a vector of 4");
  refuse("scalar(bits=12)", "1 to 8 bits");
  refuse("scalar(bits=1,zero=absmax)", "2 bits or more");
  refuse("scalar(axis=channel,group=0)", "Say group=");
}

TEST_CASE("the remedy that a refused representation names is a remedy") {
  std::size_t mended = 0;
  const std::regex said("Say (\\w+)=(\\w+)");
  for (std::string text : {"kivi", "kivi(residual=100)", "kivi(group=48,residual=96)", "kivi(keys=token)",
                           "kivi(values=channel)", "scalar", "scalar(axis=channel,group=0)",
                           "scalar(axis=channel,group=3,residual=10)", "scalar(group=7)",
                           "scalar(residual=2)", "qjl", "gear", "q8_0", "llama_cpp"})
    for (const std::size_t dim : {24U, 64U, 80U, 96U, 100U, 128U}) {
      std::string mending = text;
      for (int times = 0; times < 3; ++times) try {
          RepresentedCache({.representation = mending, .prompt = 200, .dim = dim});
          break;
        } catch (const Error& error) {
          CAPTURE(mending, dim, error.what(), error.hint());
          std::smatch found;
          const std::string hint = error.hint();
          if (!std::regex_search(hint, found, said)) break;
          ++mended;
          REQUIRE(times < 2);  // one remedy may lead to the next, and no further
          const std::regex own(found[1].str() + "=\\w+");
          if (std::regex_search(mending, own))
            mending = std::regex_replace(mending, own, found[1].str() + "=" + found[2].str());
          else if (mending.ends_with(')'))
            mending.insert(mending.size() - 1, "," + found[1].str() + "=" + found[2].str());
          else
            mending += "(" + found[1].str() + "=" + found[2].str() + ")";
        }
    }
  CHECK(mended > 15);
}

TEST_CASE("KIVI's two widths: keys in one, values in another") {
  // 128 tokens of keys in 4 bits and, behind a window of 128 that is exact, none of values; then 128 of each.
  const std::string text = "kivi(bits=4,value_bits=2,group=32,residual=32)";
  RepresentedCache both({.representation = text, .prompt = 128, .dim = 64}),
      wide({.representation = "kivi(bits=4,group=32,residual=32)", .prompt = 128, .dim = 64}),
      narrow({.representation = "kivi(bits=2,group=32,residual=32)", .prompt = 128, .dim = 64});
  for (std::size_t position = 0; position < 128; ++position)
    for (std::size_t c = 0; c < 64; ++c) {
      CHECK(both.key(position, c) == wide.key(position, c));
      CHECK(both.value(position, c) == narrow.value(position, c));
    }
  CHECK(both.key(3, 5) != narrow.key(3, 5));
  CHECK(both.value(3, 5) != wide.value(3, 5));
  // By hand: 128 keys of 64 numbers in 4 bits, 4 groups of 64 channels with 32 bits; 96 values in 2 bits, 2
  // groups of 32 channels each with 32 bits, and 32 exact ones.
  CHECK(both.ledger().bits() == 128 * 64 * 4 + 4 * 64 * 32 + 96 * 64 * 2 + 96 * 2 * 32 + 32 * 64 * 16);
  CHECK(both.ledger() == both.closed_form());
}

}  // namespace kvsim::policy::test::test_representation_kivi
