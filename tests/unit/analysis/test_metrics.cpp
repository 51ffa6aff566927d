#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/rows.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_metrics {

TEST_CASE("every metric is declared in full, once") {
  std::set<std::string> keys;
  for (const Metric& metric : all_metrics()) {
    INFO(metric.key);
    CHECK(keys.insert(metric.key).second);
    CHECK((metric.unit != nullptr && metric.meaning != nullptr && *metric.meaning != '\0'));
    CHECK((metric.measure != nullptr) + (metric.price != nullptr) + (metric.derive != nullptr) == 1);
    CHECK((metric.measure_step == nullptr || metric.measure != nullptr));
    CHECK((metric.better == Better::neither || metric.label != nullptr));
    if (metric.console.only_with != nullptr) CHECK_NOTHROW(metric_index(metric.console.only_with));
    CHECK(all_metrics()[metric_index(metric.key)].key == metric.key);
  }
  CHECK_THROWS_AS(metric_index("no metric"), Error);
}

TEST_CASE("metrics are columns of rows with what was declared; derived ones are for people only") {
  const Records plain = records_of({});
  Row row;
  price(row, "a100", {});
  const Records priced = records_of({row});
  for (const Metric& metric : all_metrics()) {
    INFO(metric.key);
    const Records& rows = metric.price == nullptr ? plain : priced;
    if (metric.derive != nullptr) {
      CHECK_THROWS_AS(rows.column(metric.key), Error);
      continue;
    }
    const ColumnInfo& column = rows.columns[rows.column(metric.key)];
    CHECK((column.unit == metric.unit && column.description.starts_with(metric.meaning)));
    if (metric.formula != nullptr) CHECK(column.description.ends_with(metric.formula));
  }
  CHECK(priced.columns.size() > plain.columns.size());
}

TEST_CASE("the most telling metrics come first, and every one that is compared by is known by its key") {
  REQUIRE(metrics().size() > 3);
  CHECK(std::string(metrics()[0].key) == "evidence_loss");
  for (const Metric& each : metrics()) CHECK(&metric(each.key) == &each);
  CHECK_THROWS_WITH(metric("atention_loss"), Catch::Contains("attention_loss"));
  CHECK(metric("attention_loss").prefers(0.1, 0.2));
  CHECK(metric("r").prefers(0.2, 0.1));
  CHECK_FALSE(metric("r").prefers(0.1, 0.1));
  CHECK_FALSE(metric("kept_bytes").prefers(1, 2));
}

TEST_CASE("a row has no value until it is set, and counts stay exact") {
  Row row;
  CHECK_FALSE(row["r"]);
  row.set("kept_bytes", ~std::uint64_t{0});
  CHECK(row.metric(metric_index("kept_bytes")) == Value(~std::uint64_t{0}));
  CHECK_FALSE(row["r"]);
  CHECK_FALSE(row["attention_loss_excess"]);
  row.set("attention_loss", 0.5);
  row.set("attention_loss_oracle", 0.25);
  CHECK(row["attention_loss_excess"] == 0.25);
}

}  // namespace kvsim::analysis::test_metrics
