#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/results/document.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_document {
namespace {

Document sample() {
  Document out{.analysis = "tides", .traces = {{"a,b.h5", "ab12", 24, 2}}, .records = {}};
  out.settings = {{"moon", Value(std::string("full"))}, {"depth", Value(0.5)}};
  out.records.columns = {
      {"trace", "", "file"}, {"layer_index", "index", "layer"}, {"height", "m", "of water"}};
  out.records.rows = {{std::string("a,b.h5"), std::uint64_t{0}, 1.0 / 3.0},
                      {std::string("a,b.h5"), std::uint64_t{1}, std::monostate{}}};
  out.notes = {"Above the sea."};
  return out;
}

std::string written(Format format, const Document& document = sample()) {
  std::ostringstream out;
  write_document(out, format, document);
  return out.str();
}

}  // namespace

TEST_CASE("document, csv and jsonl: undefined is empty or null") {
  CHECK(written(Format::csv) == "trace,layer_index,height\n\"a,b.h5\",0,0.3333333333333333\n\"a,b.h5\",1,\n");
  CHECK(written(Format::jsonl) ==
        "{\"trace\": \"a,b.h5\", \"layer_index\": 0, \"height\": 0.3333333333333333}\n"
        "{\"trace\": \"a,b.h5\", \"layer_index\": 1, \"height\": null}\n");
}

TEST_CASE("document, json: inputs, columns and results") {
  const auto document = boost::json::parse(written(Format::json)).as_object();
  CHECK(document.at("inputs") ==
        boost::json::parse(R"({"analysis": "tides", "traces": [{"trace": "a,b.h5", "content_sha256": "ab12",
                               "prompt": 24, "decode": 2}], "moon": "full", "depth": 0.5})"));
  CHECK(document.at("columns").as_array()[2] ==
        boost::json::parse(R"({"key": "height", "unit": "m", "description": "of water"})"));
  REQUIRE(document.at("results").as_array().size() == 2);
  CHECK(document.at("results").as_array()[1].at("height").is_null());
}

TEST_CASE("document, table: a row is a line, whatever text is in it") {
  Document document = sample();
  document.records.rows[0][0] = std::string("two\nlines");
  CHECK(written(Format::table, document).find("two lines") != std::string::npos);
  CHECK(written(Format::csv, document).find("two\nlines") != std::string::npos);
}

TEST_CASE("document, table: what every row says stands above, notes stand below") {
  CHECK(written(Format::table) ==
        "trace a,b.h5\n"
        "\n"
        "layer\n"
        "index  height\n"
        "    0  0.3333\n"
        "    1  -\n"
        "\n"
        "Above the sea.\n");
}

TEST_CASE("document, table: one row is shown as a row") {
  Document one = sample();
  one.records.rows.pop_back();
  CHECK_THAT(written(Format::table, one), Catch::Contains("    0  0.3333"));
}

TEST_CASE("document, table: people see what tells policies apart, machines every parameter") {
  Document document{.analysis = "tides", .traces = {}, .records = {}};
  document.records.columns = {{"policy", "", ""}, {"params", "", ""}, {"height", "m", ""}};
  document.records.rows = {{std::string("h2o"), std::string("h2o(recent=0.5,sinks=4)+uniform()"), 1.0},
                           {std::string("h2o"), std::string("h2o(recent=0.9,sinks=4)+uniform()"), 2.0},
                           {std::string("full"), std::string("full()+uniform()"), 3.0}};
  CHECK(written(Format::table, document) ==
        "policy           height\n"
        "h2o(recent=0.5)       1\n"
        "h2o(recent=0.9)       2\n"
        "full                  3\n");
  CHECK_THAT(written(Format::csv, document), Catch::Contains("full,full()+uniform(),3\n"));
}

TEST_CASE("document: people may have a table of their own, GitHub a page, and a caveat stands below both") {
  Document document = sample();
  document.caveat = "Mind the waves.";
  CHECK_THAT(written(Format::table, document), Catch::EndsWith("Above the sea.\nMind the waves.\n"));
  CHECK_THAT(written(Format::md, document), Catch::EndsWith("| 1 | - |\n\nMind the waves.\n"));
  document.console = [](std::ostream& out) { out << "high\n"; };
  document.page = [](std::ostream& out) { out << "# Tides\n"; };
  CHECK(written(Format::table, document) == "high\nMind the waves.\n");
  CHECK(written(Format::md, document) == "# Tides\n");
  CHECK(written(Format::csv, document) == written(Format::csv));
}

TEST_CASE("document: what is no text, and several tables in one, are bugs") {
  Document study{.analysis = "study", .traces = {}, .records = {}};
  study.tables = {{"means", sample().records}, {"ranks", sample().records}};
  CHECK_THROWS_AS(written(Format::csv, study), Error);
  CHECK_THROWS_AS(written(Format::h5), Error);
}

TEST_CASE("json reads back with its columns, with and without rows") {
  Document document = sample();
  const Records read = parse_json_document(written(Format::json, document), "a.json");
  CHECK(read.rows == document.records.rows);
  CHECK((read.columns[2].unit == "m" && read.columns[2].description == "of water"));
  document.records.rows.clear();
  CHECK(parse_json_document(written(Format::json, document), "a.json").columns.size() == 3);
  CHECK(parse_json_lines(written(Format::jsonl), "a.jsonl").rows == sample().records.rows);
}

}  // namespace kvsim::analysis::test_document
