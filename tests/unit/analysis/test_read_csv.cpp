#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/results/reading/column_types.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/rows.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/analysis/worked_outcome.hpp"

namespace kvsim::analysis::test_read_csv {
namespace {

std::string csv(const Records& records) {
  std::ostringstream out;
  write_csv(out, records);
  return out.str();
}

std::string refusal(const std::string& text, const std::vector<ColumnInfo>& expected = {}) {
  try {
    Records read = parse_csv(text, "a.csv");
    expect_columns(read, expected, "a.csv");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

using Fields = std::vector<Value>;

}  // namespace

TEST_CASE("fields have the types of their columns") {
  const Records got =
      parse_csv("budget,n,x,name\n128,7,0.5,a\n25%,,-1e-3,1\n,18446744073709551615,2,\n", "a.csv");
  REQUIRE(got.rows.size() == 3);
  CHECK(got.rows[0] ==
        Fields{"128", std::uint64_t{7}, 0.5, "a"});           // a budget is text, even if it is a number
  CHECK(got.rows[1] == Fields{"25%", Value(), -0.001, "1"});  // text among the names: all names are text
  CHECK(got.rows[2] == Fields{Value(), ~std::uint64_t{0}, std::uint64_t{2}, Value()});
}

TEST_CASE("quotes, commas, line ends") {
  const Records got = parse_csv(
      "\xef\xbb\xbf"
      "a,b\r\n\"x,\"\"y\"\"\",\"two\nlines\"\r\n\"\",\"\"\"\"\r\n",
      "a.csv");
  REQUIRE(got.rows.size() == 2);
  CHECK(got.columns[0].key == "a");
  CHECK(got.rows[0] == Fields{"x,\"y\"", "two\nlines"});
  CHECK(got.rows[1] == Fields{Value(), "\""});
  CHECK(parse_csv("a\n\n1", "").rows == std::vector<Fields>{{Value()}, {std::uint64_t{1}}});
  CHECK(parse_csv("a,b", "").rows.empty());
}

TEST_CASE("what was written is read, and written again the same") {
  std::vector<analysis::Row> rows =
      make_rows("odd, \"name\"\n.h5", test::worked_request(), test::worked_outcome(), Scope::head);
  rows[1].set("r", {});
  rows[2].set("attention_loss", 1e-300);
  rows[3].set("attention_loss", -0.0);
  const Records written = records_of(rows);
  Records read = parse_csv(csv(written), "a.csv");
  expect_columns(read, written.columns, "a.csv");
  CHECK(csv(read) == csv(written));
  REQUIRE(read.rows.size() == written.rows.size());
  for (std::size_t i = 0; i < read.rows.size(); ++i)
    for (std::size_t c = 0; c < read.columns.size(); ++c)
      CHECK(number(read.rows[i][c]) == number(written.rows[i][c]));
  CHECK(read.columns[read.column("r")].unit == "share");
}

TEST_CASE("damage is told with its line") {
  CHECK(refusal("").find("is empty") != std::string::npos);
  CHECK(refusal("a,b\n1,2\n3\n").find("1 fields where there are 2 columns") != std::string::npos);
  CHECK(refusal("a,b\n1,2\n3\n").find("a.csv:3") != std::string::npos);
  // Lines inside a field count.
  CHECK(refusal("a,b\n\"x\ny\",2\n3,4,5\n").find("a.csv:4") != std::string::npos);
  CHECK(refusal("a,b\n1,\"2\n3,4\n").find("never closed") != std::string::npos);
  CHECK(refusal("a,b\n1,\"2\n3,4\n").find("a.csv:2") != std::string::npos);
  CHECK(refusal("a,b\n1,\"2\"3\n").find("after a closing quote") != std::string::npos);
  CHECK(refusal("a,b\n1,2\"3\"\n").find("a quote inside") != std::string::npos);
  CHECK(refusal("a,b\n1,2\r3,4\n").find("carriage return") != std::string::npos);
  CHECK(refusal("a,a\n1,2\n").find("two columns called") != std::string::npos);
  CHECK(refusal("a,\n1,2\n").find("without a name") != std::string::npos);
  CHECK(refusal(std::string(5000, ',')).find("more than 1000 fields") != std::string::npos);
}

TEST_CASE("what limits an operation is text, the bound of a metric a number") {
  CHECK((is_text_key("step_linear_bound") && is_text_key("prefill_attention_bound")));
  CHECK_FALSE((is_text_key("r_bound") || is_text_key("attention_loss_bound")));
  for (const char* key : {"cut", "holding", "budget"}) CHECK(is_text_key(key));
}

TEST_CASE("an expected column must be there and hold what it should") {
  const std::vector<ColumnInfo> expected{{"policy", "", ""}, {"r", "share", ""}};
  CHECK(refusal("r,policy\n0.5,h2o\n,\n", expected) == "accepted");
  CHECK(refusal("policy\nh2o\n", expected).find("no column \"r\"") != std::string::npos);
  const std::string message = refusal("policy,r\nh2o,0.5\nh2o,nan\n", expected);
  CHECK(message.find("\"nan\" is not a number") != std::string::npos);
  CHECK(message.find("a.csv, row 2, column r") != std::string::npos);
  for (const char* bad : {"inf", "0x10", "1e999", " 1", "1 ", "+1", "1,5e"})
    CHECK(refusal("policy,r\nh2o,\"" + std::string(bad) + "\"\n", expected).find("is not a number") !=
          std::string::npos);
  // Other formats may have text that looks like a number.
  Records quoted{{{"r", "", ""}}, {{0.5}, {"0.5"}}};
  CHECK_THROWS_WITH(expect_columns(quoted, {{"r", "share", ""}}, "a.json"),
                    Catch::Contains("\"0.5\" is not a number") && Catch::Contains("row 2"));
}

}  // namespace kvsim::analysis::test_read_csv
