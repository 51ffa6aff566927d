// The kinds of analysis behind XKV's figures: their tables, settings and refusals.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "analysis/kinds/kind.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/support/random_trace.hpp"

namespace kvsim::analysis::test_xkv_kinds {

using Catch::Contains;

namespace {

const test::TraceShape kShape{.layers = 3, .prompt = 60};

Records measured(const char* name, const trace::MemoryTrace& trace,
                 const std::map<std::string, std::string>& set = {}, unsigned threads = 1) {
  const Kind& kind = kind_named(name);
  Settings settings(kind.settings);
  for (const auto& [key, value] : set) settings.set(key, value, "--" + key);
  Progress progress;
  const trace::Sequence sequence(trace);
  Records records{kind.columns,
                  kind.measure({"t", sequence, settings, policy::builtin(), threads, progress})};
  for (const std::vector<Value>& row : records.rows) CHECK(row.size() == kind.columns.size());
  return records;
}

double at(const Records& records, std::size_t row, const char* key) {
  const auto found = number(records.rows[row][records.column(key)]);
  REQUIRE(found);
  return *found;
}

bool undefined(const Records& records, std::size_t row, const char* key) {
  return std::holds_alternative<std::monostate>(records.rows[row][records.column(key)]);
}

/// One policy's rows on one trace.
void add_split(Records& all, const char* trace, const char* policy, const std::vector<Value>& shares) {
  for (std::uint64_t layer = 0; layer < shares.size(); ++layer)
    all.rows.push_back({trace, policy, policy, "10%", layer, shares[layer], shares[layer]});
}

Records summarised(const Records& all) {
  const Kind& kind = kind_named("allocation-consistency");
  Records out = kind.summarise(all, Settings(kind.settings));
  CHECK(out.columns.size() == kind.summary_columns.size());
  for (const std::vector<Value>& row : out.rows) CHECK(row.size() == out.columns.size());
  return out;
}

}  // namespace

TEST_CASE("importance: spans cover the positions once and sum to one per layer") {
  const trace::MemoryTrace trace = test::random_trace(kShape);
  const Records each = measured("importance", trace, {{"bins", "0"}});
  REQUIRE(each.rows.size() == 3 * 52);
  for (const std::uint64_t bins : {1U, 7U, 51U, 52U, 53U}) {
    const Records spans = measured("importance", trace, {{"bins", std::to_string(bins)}});
    const std::size_t n = std::min<std::size_t>(bins, 52);
    REQUIRE(spans.rows.size() == 3 * n);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      double sum = 0, next = 0;
      for (std::size_t row = layer * n; row < (layer + 1) * n; ++row) {
        CHECK(at(spans, row, "layer") == static_cast<double>(layer));
        CHECK(at(spans, row, "first") == next);
        next = at(spans, row, "last") + 1;
        CHECK(std::abs(next - at(spans, row, "first") - 52.0 / static_cast<double>(n)) < 1);
        double share = 0;
        for (double j = at(spans, row, "first"); j < next; ++j)
          share += at(each, layer * 52 + static_cast<std::size_t>(j), "share");
        CHECK(at(spans, row, "share") == Approx(share));
        sum += share;
      }
      CHECK(next == 52);
      CHECK(sum == Approx(1));
    }
  }
}

TEST_CASE("retention: the sizes of a geometric grid and those asked for, ascending, each once") {
  const Records records =
      measured("retention", test::random_trace(kShape), {{"points", "1"}, {"shares", "0,10%,50%,1"}});
  // 52 positions: 10 % is 5.2, 50 % is 26.
  const std::vector<double> sizes{1, 2, 4, 5, 8, 16, 26, 32, 52};
  REQUIRE(records.rows.size() == 3 * sizes.size());
  for (std::size_t row = 0; row < records.rows.size(); ++row) {
    CHECK(at(records, row, "n") == sizes[row % sizes.size()]);
    CHECK(at(records, row, "share") == sizes[row % sizes.size()] / 52);
    CHECK(undefined(records, row, "isr") == (row % sizes.size() == 0));
    CHECK(undefined(records, row, "isr_slope") == (row % sizes.size() < 2));
  }
  CHECK(at(records, sizes.size() - 1, "r") == 1);
  CHECK(at(records, 4, "isr") == Approx(at(records, 4, "r") / 3));
}

TEST_CASE("retention-size is where the curve of retention passes") {
  const trace::MemoryTrace trace = test::random_trace(kShape);
  const Records sizes = measured("retention-size", trace, {{"r", "0.3,1"}, {"slope", "1e-3"}});
  // Many points per doubling: every n.
  const Records curve = measured("retention", trace, {{"points", "64"}});
  REQUIRE(sizes.rows.size() == 9);
  REQUIRE(curve.rows.size() == 3 * 52);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    const auto of = [&](double n, const char* key) {
      return at(curve, layer * 52 + static_cast<std::size_t>(n) - 1, key);
    };
    const double n = at(sizes, 3 * layer, "n"), last = at(sizes, 3 * layer + 2, "n");
    CHECK(of(n, "r") >= 0.3);
    CHECK(of(n - 1, "r") < 0.3);
    CHECK(at(sizes, 3 * layer, "r") == of(n, "r"));
    CHECK(at(sizes, 3 * layer + 1, "n") == 52);
    CHECK(of(last, "isr_slope") >= 1e-3);
    for (double after = last + 1; after <= 52; ++after) CHECK(of(after, "isr_slope") < 1e-3);
    CHECK(at(sizes, 3 * layer + 2, "share") == last / 52);
  }
  CHECK(undefined(measured("retention-size", trace, {{"slope", "1"}}), 4, "n"));
}

TEST_CASE("a layer that looks at nothing before the last rows has no shares") {
  trace::MemoryTrace trace = test::random_trace({.layers = 2, .prompt = 30, .layer_window = {-1, 1}});
  const Records importance = measured("importance", trace, {{"bins", "2"}}),
                retention = measured("retention", trace, {{"points", "1"}});
  CHECK(at(importance, 0, "share") + at(importance, 1, "share") == Approx(1));
  CHECK(undefined(importance, 2, "share"));
  for (const char* key : {"r", "isr", "isr_slope"})
    CHECK(undefined(retention, retention.rows.size() - 1, key));
  CHECK(at(retention, retention.rows.size() - 1, "n") == 22);
  CHECK(undefined(measured("retention-size", trace), 5, "r"));
}

TEST_CASE("allocation: xkv gives a layer as many tokens as it has among the largest of all") {
  const trace::MemoryTrace trace = test::random_trace({.layers = 3, .prompt = 80});
  const Records given = measured("allocation", trace, {{"policies", "xkv"}, {"budget", "18"}}),
                w = measured("importance", trace, {{"bins", "0"}});
  std::vector<std::pair<double, std::size_t>> all;
  for (std::size_t row = 0; row < w.rows.size(); ++row) all.emplace_back(-at(w, row, "share"), row / 72);
  std::sort(all.begin(), all.end());
  std::vector<double> tokens(3, 8);  // the window
  for (std::size_t i = 0; i < 3 * 10; ++i) tokens[all[i].second] += 1;
  for (std::size_t layer = 0; layer < 3; ++layer) {
    CHECK(at(given, layer, "tokens") == tokens[layer]);
    CHECK(at(given, layer, "share") == tokens[layer] / 54);
  }
}

TEST_CASE("allocation: a policy that cannot run has undefined shares, none that can is refused") {
  const trace::MemoryTrace trace = test::random_trace({.layers = 3, .prompt = 80});
  const Records given = measured(
      "allocation", trace, {{"policies", "snapkv(window=8)+pyramid(beta=10),cake.layers"}, {"budget", "18"}});
  // Pyramid: 10 above the window on average, of which the last layer gets 1, the first 19.
  CHECK(at(given, 0, "tokens") == 27);
  CHECK(at(given, 2, "tokens") == 9);
  for (std::size_t row = 3; row < 6; ++row) {
    CHECK(text(given.rows[row][given.column("policy")]) == "cake.layers");
    CHECK(undefined(given, row, "tokens"));
    CHECK(undefined(given, row, "share"));
  }
  CHECK_THROWS_WITH(measured("allocation", trace, {{"policies", "cake.layers"}, {"budget", "18"}}),
                    Contains("keeps 32 tokens"));
  CHECK_THROWS_WITH(measured("allocation", trace, {{"policies", "xkv,snapkv,xkv(window=8)"}}),
                    Contains("'xkv(window=8)' is listed twice"));
}

TEST_CASE("consistency over traces, worked by hand") {
  Records all{kind_named("allocation-consistency").columns, {}};
  add_split(all, "a", "x", {0.5, 0.3, 0.2});
  add_split(all, "a", "y", {0.2, 0.4, 0.4});
  add_split(all, "b", "x", {0.7, 0.1, 0.2});
  add_split(all, "b", "y", {{}, {}, {}});
  const Records out = summarised(all);
  REQUIRE(out.rows.size() == 6);
  CHECK(at(out, 0, "traces") == 2);
  CHECK(at(out, 0, "share") == Approx(0.6));
  CHECK(at(out, 0, "share_spread") == Approx(0.1));
  CHECK(at(out, 0, "share_low") == 0.5);
  CHECK(at(out, 0, "share_high") == 0.7);
  // Ranks 3 2 1 and 3 1 2: Spearman 1 - 6 * 2 / 24; sums 6 3 3, squares 6, W = 12 * 6 / (4 * 24).
  for (std::size_t row = 0; row < 3; ++row) {
    CHECK(at(out, row, "rank_correlation") == Approx(0.5));
    CHECK(at(out, row, "concordance") == Approx(0.75));
  }
  // One trace: no spread, nothing to agree with.
  CHECK(at(out, 3, "traces") == 1);
  CHECK(at(out, 4, "share") == 0.4);
  for (const char* key : {"share_spread", "rank_correlation", "concordance"}) CHECK(undefined(out, 3, key));
  add_split(all, "c", "x", {0.5, 0.5});
  CHECK_THROWS_WITH(summarised(all), Contains("has 2 layers, 'a' 3") && Contains("c"));
  CHECK(summarised({all.columns, {}}).rows.empty());
}

TEST_CASE("tables of importance and allocation do not depend on threads") {
  const trace::MemoryTrace trace = test::random_trace({.layers = 3, .prompt = 150});
  for (const char* kind : {"importance", "retention", "retention-size"})
    CHECK(measured(kind, trace, {}, 1).rows == measured(kind, trace, {}, 2).rows);
  const std::map<std::string, std::string> set{{"budget", "40"}};
  CHECK(measured("allocation", trace, set, 1).rows == measured("allocation", trace, set, 2).rows);
}

TEST_CASE("settings of importance that make no sense are refused") {
  const trace::MemoryTrace trace = test::random_trace(kShape);
  CHECK_THROWS_WITH(measured("importance", trace, {{"pool", "4"}}), Contains("'4' is not odd"));
  CHECK_THROWS_WITH(measured("importance", trace, {{"rows", "0"}}), Contains("--rows"));
  CHECK_THROWS_WITH(measured("importance", trace, {{"rows", "60"}}), Contains("prompt of 60 tokens"));
  CHECK_THROWS_WITH(measured("retention", trace, {{"points", "65"}}), Contains("--points"));
  CHECK_THROWS_WITH(measured("retention", trace, {{"shares", "2"}}), Contains("--shares"));
  CHECK_THROWS_WITH(measured("retention-size", trace, {{"slope", "x"}}), Contains("--slope"));
}

}  // namespace kvsim::analysis::test_xkv_kinds
