// Selections that others are compared with.
#include <catch2/catch.hpp>
#include <map>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_controls {

TEST_CASE("top_tokens: the highest logits", "[controls]") {
  // q = (2, 1): logits 2, 1, 5, 0, 3 and 6 of the newest.
  SelectedShape shape{.selection = "top_tokens(read=3)", .prompt = 5, .dim = 2, .length = 6};
  shape.keys = {1, 0, 0, 1, 2, 1, 0, 0, 1, 1, 3, 0};
  shape.queries = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1};
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{2, 4, 5});

  SelectedCache noise(
      {.selection = "top_tokens(read=25%)", .prompt = 80, .n_lanes = 2, .dim = 9, .group = 2});
  for (int step = 0; step < 10; ++step) {
    noise.append(step > 4 ? std::vector<std::size_t>{3} : std::vector<std::size_t>{});
    for (std::size_t head = 0; head < 4; ++head) {
      double least = 1e300, most_left = -1e300;
      for (const Position position : noise.slots()) {
        const double logit = noise.logit(noise.position(), static_cast<std::size_t>(position), head);
        if (noise.read(head).contains(position)) {
          if (static_cast<std::size_t>(position) != noise.position()) least = std::min(least, logit);
        } else {
          most_left = std::max(most_left, logit);
        }
      }
      CHECK(least >= most_left - 1e-5);
    }
  }
}

TEST_CASE("recent_tokens: sinks and the newest by position", "[controls]") {
  SelectedCache cache({.selection = "recent_tokens(read=6,sinks=2)", .prompt = 20});
  cache.append();
  CHECK(cache.read() == std::set<Position>{0, 1, 17, 18, 19, 20});
  cache.append({0});  // the newest takes the first slot
  CHECK(cache.read() == std::set<Position>{1, 2, 18, 19, 20, 21});
  SelectedCache one({.selection = "recent_tokens(read=1,sinks=0)", .prompt = 20});
  one.append();
  CHECK(one.read() == std::set<Position>{20});
}

TEST_CASE("random_tokens: every stored token is as likely", "[controls]") {
  SelectedCache cache({.selection = "random_tokens(read=10)", .prompt = 39, .group = 2, .length = 1039});
  std::map<Position, int> counts;
  for (int step = 0; step < 1000; ++step) {
    cache.append(step == 0 ? std::vector<std::size_t>{} : std::vector<std::size_t>{39});
    for (const Position position : cache.read(0)) ++counts[position];
    CHECK(cache.read(0) != cache.read(1));
  }
  // Of 39 prompt tokens each is read with probability 10 / 40: 250 of 1,000 times, with a deviation of 13.7.
  for (Position position = 0; position < 39; ++position) {
    CHECK(counts[position] > 195);
    CHECK(counts[position] < 305);
  }
}

TEST_CASE("infinigen is refused by its name, with what there is instead", "[controls]") {
  for (const char* text : {"full+infinigen", "infinigen"}) {
    CAPTURE(text);
    try {
      parse_composition(text, builtin());
      FAIL("it was not refused");
    } catch (const kvsim::Error& error) {
      CHECK(error.kind() == kvsim::ErrorKind::usage);
      CHECK_THAT(error.what(), Catch::Contains("skewed offline"));
      CHECK_THAT(error.what(), Catch::Contains("top_tokens"));
    }
  }
}

}  // namespace kvsim::policy::test::test_selection_controls
