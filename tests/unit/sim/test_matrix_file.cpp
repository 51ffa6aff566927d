// Tests tables of heads from text files, legal and damaged.
#include <catch2/catch.hpp>
#include <fstream>

#include "sim/base/error.hpp"
#include "sim/replay/table_files.hpp"
#include "tests/unit/traces/scratch.hpp"

namespace kvsim::test_matrix_file {

using Catch::Contains;
using Matrix = std::vector<std::vector<double>>;

namespace {

Matrix read(const std::string& name, const std::string& text) {
  const test::Scratch scratch;
  std::ofstream(scratch.file(name), std::ios::binary) << text;
  return sim::read_matrix(scratch.file(name));
}

std::string refusal(const std::string& name, const std::string& text) {
  try {
    read(name, text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    CHECK_THAT(error.what(), Contains(name));
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("rows of numbers between tabs or commas") {
  CHECK(read("a.tsv", "1\t0.5\n2\t3e-1\n") == Matrix{{1, 0.5}, {2, 0.3}});
  CHECK(read("a.csv", "1, 2,-3\r\n\n4,5,6") == Matrix{{1, 2, -3}, {4, 5, 6}});
  CHECK(read("a.csv", "7\n8\n") == Matrix{{7}, {8}});
}

TEST_CASE("the shapes of JSON that are read") {
  CHECK(read("a.json", "[[1, 2.5], [3, 4]]") == Matrix{{1, 2.5}, {3, 4}});
  CHECK(read("a.json", "[1, 3]") == Matrix{{1}, {3}});
  CHECK(read("a.json", R"({"traces": ["x"], "shares": [[1], [2]]})") == Matrix{{1}, {2}});
  // Heads in any order; a list is averaged.
  CHECK(read("a.json", R"({"1-1": 4, "0-0": [1, 2, 3], "0-1": 7, "1-0": [5]})") == Matrix{{2, 7}, {5, 4}});
}

TEST_CASE("a file that is not a table of heads is refused with the place") {
  CHECK_THAT(refusal("a.csv", "1,2\n3,x\n"), Contains("line 2") && Contains("'x'"));
  CHECK_THAT(refusal("a.csv", "1,,2\n"), Contains("line 1"));
  CHECK_THAT(refusal("a.tsv", "1\tnan\n"), Contains("'nan'"));
  CHECK_THAT(refusal("a.tsv", "1\t1e999\n"), Contains("line 1"));
  CHECK_THAT(refusal("a.csv", ""), Contains("holds 0 numbers"));
  CHECK_THAT(refusal("a.json", "[[1, 2], [3"), Contains("not JSON"));
  CHECK_THAT(refusal("a.json", "3"), Contains("neither rows nor heads"));
  CHECK_THAT(refusal("a.json", "[[1, \"2\"]]"), Contains("layer 0, entry 1"));
  CHECK_THAT(refusal("a.json", "[[1e999]]"), Contains("a.json"));
  CHECK_THAT(refusal("a.json", "[]"), Contains("holds 0 numbers"));
  CHECK_THAT(refusal("a.json", R"({"shares": 3})"), Contains("'shares'"));
  CHECK_THAT(refusal("a.json", R"({"0-0": 1, "7": 2})"), Contains("'7'") && Contains("layer-head"));
  CHECK_THAT(refusal("a.json", R"({"0-0": 1, "-1-0": 2})"), Contains("'-1-0'"));
  CHECK_THAT(refusal("a.json", R"({"0-0": 1, "4000000000-0": 2})"), Contains("not all of"));
  CHECK_THAT(refusal("a.json", R"({"0-0": 1, "0-00": 2})"), Contains("not all of"));
  CHECK_THAT(refusal("a.json", R"({"0-0": 1, "0-00": 2, "0-1": 1, "1-1": 1})"), Contains("named before"));
  CHECK_THAT(refusal("a.json", R"({"0-0": []})"), Contains("empty list"));
  CHECK_THAT(refusal("a.json", std::string(5000, '[')), Contains("not JSON"));
  CHECK_THAT(refusal("a.txt", "1"), Contains("no known kind"));
  CHECK_THROWS_AS(sim::read_matrix("/no/such/file.csv"), Error);
  CHECK_THROWS_AS(sim::read_matrix("/tmp/.json"), Error);
}

}  // namespace kvsim::test_matrix_file
