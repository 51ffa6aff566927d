// Nearest spellings.
#include <catch2/catch.hpp>

#include "sim/base/suggest.hpp"

namespace kvsim::test_suggest {

TEST_CASE("distances by hand") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "abd") == 1);   // substitute
  CHECK(edit_distance("abc", "abcd") == 1);  // insert
  CHECK(edit_distance("abc", "ac") == 1);    // delete
  CHECK(edit_distance("abc", "acb") == 1);   // swap of neighbours
  CHECK(edit_distance("ca", "abc") == 3);    // optimal string alignment edits no piece twice
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("SnapKV", "snapkv") == 0);
}

TEST_CASE("the nearest names come first, and distant names are left out") {
  const std::vector<std::string> known{"window", "snapkv", "h2o", "tova", "pyramidkv"};
  CHECK(nearest("snpkv", known) == std::vector<std::string>{"snapkv"});
  CHECK(nearest("widnow", known).front() == "window");
  CHECK(nearest("h20", known).front() == "h2o");
  CHECK(nearest("pyramid", known).front() == "pyramidkv");  // contained
  CHECK(nearest("somethingelse", known).empty());
  CHECK(nearest("x", {"a", "b", "c", "d"}, 2).size() == 2);
}

TEST_CASE("suggestions read as sentences") {
  CHECK(suggestion("snpkv", {"snapkv", "window"}) == "Did you mean snapkv?");
  CHECK(suggestion("aa", {"ab", "ac", "ad"}) == "Did you mean ab, ac or ad?");
  CHECK(suggestion("zzzzzzzz", {"snapkv", "window"}) == "Known: snapkv, window.");
  CHECK(suggestion("x", {}).empty());
  const std::string many = suggestion("zzzzzzzz", std::vector<std::string>(30, "snapkv"));
  CHECK(many.ends_with("snapkv and 6 more."));
}

}  // namespace kvsim::test_suggest
