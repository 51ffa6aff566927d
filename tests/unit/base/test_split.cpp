#include <catch2/catch.hpp>

#include "sim/base/split.hpp"

namespace kvsim::test_split {

using Pieces = std::vector<std::string_view>;
using Items = std::vector<std::string>;

TEST_CASE("split: n separators make n + 1 pieces, taken as they are") {
  CHECK(split("", ',') == Pieces{""});
  CHECK(split("a", ',') == Pieces{"a"});
  CHECK(split(",a, b,", ',') == Pieces{"", "a", " b", ""});
}

TEST_CASE("trimmed: white space at the ends goes, inside it stays") {
  CHECK(trimmed("") == "");
  CHECK(trimmed(" \t\r\n") == "");
  CHECK(trimmed("\ta b\r\n") == "a b");
}

TEST_CASE("comma list: items are trimmed, and a comma in parentheses separates nothing") {
  CHECK(comma_list("") == Items{""});
  CHECK(comma_list("8, 16 ,") == Items{"8", "16", ""});
  CHECK(comma_list("snapkv(window=8,pool=max:7),h2o") == Items{"snapkv(window=8,pool=max:7)", "h2o"});
  CHECK(comma_list("a(b(c,d),e),f") == Items{"a(b(c,d),e)", "f"});
  CHECK(comma_list("a),b") == Items{"a)", "b"});
}

}  // namespace kvsim::test_split
