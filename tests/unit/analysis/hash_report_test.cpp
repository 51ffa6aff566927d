#include "analysis/hash_report.hpp"

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <sstream>

using namespace kvsim;
using namespace kvsim::analysis;

namespace {

/// Eight bits with everything; four where no head has a correlation.
std::vector<HashReport> reports() {
  HashReport report{"a,b.h5", {}};
  report.lengths.push_back({8, {6, 2, 0.25, 0.125}, {8, 0, 0.5, 1.0 / 3.0}});
  report.lengths.push_back({4, {0, 8, {}, {}}, {8, 0, 0.5, 0.0625}});
  return {report};
}

std::string written(Format format, const std::vector<HashReport>& all = reports()) {
  std::ostringstream out;
  write_hash_reports(out, format, all, {{"a,b.h5", "ab12", 24, 2}},
                     {.bits = {8, 4}, .projections = 3, .skip = 1, .seed = 7});
  return out.str();
}

}  // namespace

TEST_CASE("hash report, csv: undefined is empty") {
  CHECK(
      written(Format::csv) ==
      "trace,bits,correlation,correlation_spread,heads,undefined,correlation_noise,correlation_noise_spread\n"
      "\"a,b.h5\",8,0.25,0.125,6,2,0.5,0.3333333333333333\n"
      "\"a,b.h5\",4,,,0,8,0.5,0.0625\n");
}

TEST_CASE("hash report, json: inputs and results, undefined is null") {
  const auto document = boost::json::parse(written(Format::json)).as_object();
  CHECK(document.at("inputs") ==
        boost::json::parse(R"({"analysis": "hash", "traces": [{"trace": "a,b.h5", "content_sha256": "ab12",
                               "prompt": 24, "decode": 2}], "bits": [8, 4], "projections": 3, "skip": 1,
                               "seed": 7})"));
  const auto& results = document.at("results").as_array();
  REQUIRE(results.size() == 2);
  CHECK(results[0].at("correlation").as_double() == 0.25);
  CHECK(results[1].at("correlation").is_null());
  CHECK(results[1].at("undefined").as_int64() == 8);
  // Lines are the same objects.
  std::istringstream lines(written(Format::jsonl));
  for (const auto& result : results) {
    std::string line;
    REQUIRE(std::getline(lines, line));
    CHECK(boost::json::parse(line) == result);
  }
}

TEST_CASE("hash report, table and md") {
  using Catch::Contains;
  CHECK_THAT(written(Format::table),
             Contains("   8       0.2500  0.1250       0.5000  0.3333  -0.2500      6"));
  CHECK_THAT(written(Format::table), !Contains("a,b.h5"));  // the only trace needs no column
  CHECK_THAT(written(Format::md), Contains("| a,b.h5 | 4 | - | - | 0 | 8 | 0.5 | 0.0625 |"));
  std::vector<HashReport> two = {reports()[0], reports()[0]};
  CHECK_THAT(written(Format::table, two), Contains("a,b.h5     8"));
}
