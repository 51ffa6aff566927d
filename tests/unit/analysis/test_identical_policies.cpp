#include <catch2/catch.hpp>

#include "analysis/results/replay_document.hpp"
#include "analysis/results/rows.hpp"

namespace kvsim::analysis::test_identical_policies {
namespace {

Row row_of(const char* params, const char* budget, double r) {
  Row row;
  row.trace = "t";
  row.params = params;
  row.budget = budget;
  row.set("r", r);
  row.set("kept_tokens", 4.0);
  return row;
}

using Groups = std::vector<std::vector<std::string>>;

}  // namespace

TEST_CASE("policies are identical when all their rows are") {
  CHECK(identical_policies(records_of({})) == Groups{});
  CHECK(identical_policies(records_of(
            {row_of("a", "1", 0.5), row_of("b", "1", 0.25), row_of("c", "1", 0.5)})) == Groups{{"a", "c"}});
  // Equal at one budget only.
  CHECK(identical_policies(records_of({row_of("a", "1", 0.5), row_of("b", "1", 0.5), row_of("a", "2", 0.75),
                                       row_of("b", "2", 0.5)})) == Groups{});
  CHECK(identical_policies(records_of({row_of("a", "1", 0.5), row_of("b", "1", 0.5), row_of("c", "1", 0.5),
                                       row_of("d", "1", 0.1), row_of("e", "1", 0.1)})) ==
        Groups{{"a", "b", "c"}, {"d", "e"}});
}

TEST_CASE("undefined equals only undefined, and what never ran equals nothing") {
  Row undefined = row_of("b", "1", 0);
  undefined.set("r", {});
  CHECK(identical_policies(records_of({row_of("a", "1", 0), undefined})) == Groups{});
  Row skipped = undefined, other = undefined;
  skipped.skipped = other.skipped = "too small";
  skipped.set("kept_tokens", {});
  other.set("kept_tokens", {});
  other.params = "c";
  CHECK(identical_policies(records_of({skipped, other})) == Groups{});
}

}  // namespace kvsim::analysis::test_identical_policies
