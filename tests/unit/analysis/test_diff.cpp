#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/results/diff.hpp"
#include "analysis/results/reading/read_tables.hpp"

namespace kvsim::analysis::test_diff {
namespace {

NamedTable table(const std::string& csv, const std::string& name = "results") {
  return {name, parse_csv(csv, name)};
}

/// Findings as csv, without the heading.
std::string findings(const std::vector<NamedTable>& a, const std::vector<NamedTable>& b,
                     double tolerance = 0) {
  std::ostringstream out;
  write_csv(out, compare(a, b, tolerance).findings);
  return out.str().substr(out.str().find('\n') + 1);
}
std::string findings(const std::string& a, const std::string& b, double tolerance = 0) {
  return findings({table(a)}, {table(b)}, tolerance);
}

}  // namespace

TEST_CASE("the same results have no findings, in any order of rows and columns") {
  const std::string csv = "policy,layer,r,n\nh2o,0,0.5,3\nh2o,1,,4\ntova,0,0.25,5\n";
  CHECK(findings(csv, csv).empty());
  CHECK(findings(csv, "n,policy,r,layer\n5,tova,0.25,0\n4,h2o,,1\n3,h2o,0.5,0\n").empty());
  const Comparison got = compare({table(csv)}, {table(csv)}, 0);
  CHECK(got.tables == 1);
  CHECK(got.rows == 3);
  CHECK(got.values == 6);
}

TEST_CASE("changed values: how many, how far, where most") {
  CHECK(findings("policy,layer,r\nh2o,0,0.5\nh2o,1,0.5\nh2o,2,8\n",
                 "policy,layer,r\nh2o,0,0.25\nh2o,1,0.5\nh2o,2,7\n") ==
        "results,changed,r,2,1,0.5,8,7,layer=2\n");
  // The row is named by what tells it from the others, and no more.
  CHECK(findings("policy,params,r\na,a(),1\nb,b(),1\n", "policy,params,r\na,a(),1\nb,b(),2\n") ==
        "results,changed,r,1,1,0.5,1,2,policy=b\n");
}

TEST_CASE("undefined is no number") {
  const std::string undefined = "layer,r\n0,\n1,1\n", defined = "layer,r\n0,0\n1,1\n";
  CHECK(findings(undefined, defined, 1) == "results,changed,r,1,,,,0,layer=0\n");
  CHECK(findings(undefined, undefined).empty());
}

TEST_CASE("tolerance is absolute up to one and relative above") {
  const std::string before = "layer,r,bytes\n0,0.5,1000\n";
  CHECK(findings(before, "layer,r,bytes\n0,0.5078125,1000\n", 0.0078125).empty());
  CHECK_FALSE(findings(before, "layer,r,bytes\n0,0.515625,1000\n", 0.0078125).empty());
  CHECK(findings(before, "layer,r,bytes\n0,0.5,1007\n", 0.0078125).empty());
  CHECK_FALSE(findings(before, "layer,r,bytes\n0,0.5,1009\n", 0.0078125).empty());
}

TEST_CASE("rows, columns and tables of one side") {
  CHECK(findings("policy,r\na,1\nb,1\n", "policy,r\nb,1\nc,1\nd,1\n") ==
        "results,rows only in A,,1,,,,,policy=a\nresults,rows only in B,,2,,,,,policy=c\n");
  CHECK(findings("policy,r,x\na,1,1\n", "policy,r,y\na,1,1\n") ==
        "results,column only in A,x,,,,,,\nresults,column only in B,y,,,,,,\n");
  CHECK(findings({table("a,b\n1,2\n", "hash"), table("a,b\n1,2\n")},
                 {table("a,b\n1,2\n"), table("a,b\n1,2\n", "heads")}) ==
        "hash,table only in A,,1,,,,,\nheads,table only in B,,1,,,,,\n");
}

TEST_CASE("rows with the same names are paired in order") {
  CHECK(findings("trace,x\nt,1\nt,2\n", "trace,x\nt,1\nt,3\nt,4\n") ==
        "results,rows only in B,,1,,,,,\nresults,changed,x,1,1,0.3333333333333333,2,3,\n");
}

}  // namespace kvsim::analysis::test_diff
