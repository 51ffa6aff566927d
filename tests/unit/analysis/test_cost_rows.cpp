#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "analysis/cost/cost_fit.hpp"
#include "analysis/cost/cost_rows.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_cost_rows {

namespace {

/// Two layers, one KV head of 4 components: keys and values of a token are 2 * 2 * 4 * 2 bytes = 32.
constexpr std::uint64_t kTokenBytes = 32;

CostStudy small_study() {
  CostStudy study;
  study.model = cost::parse_model(R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10})",
                                  "small");
  study.machine = cost::find_machine("t4");
  study.prompts = {100};
  study.generates = {20};
  study.batches = {1};
  study.threads = 1;
  for (const char* text : {"full", "h2o"})
    study.policies.push_back(policy::parse_composition(text, policy::builtin()));
  study.budgets = sim::parse_budgets("10%,60");
  return study;
}

std::vector<std::uint64_t> budgets_of(const std::vector<CostRow>& rows) {
  std::vector<std::uint64_t> out;
  for (const CostRow& row : rows) out.push_back(row.estimate ? row.estimate->budget : 0);
  return out;
}

}  // namespace

TEST_CASE("columns of costs are told once each, with unit and description") {
  std::set<std::string> keys;
  for (const ColumnInfo& column : cost_columns()) {
    CHECK(keys.insert(column.key).second);
    CHECK_FALSE(column.description.empty());
    if (column.key.ends_with("_bytes")) CHECK(column.unit == "bytes");
    if (column.key.ends_with("_seconds")) CHECK(column.unit == "s");
  }
}

TEST_CASE("a row says what its estimate says") {
  CostRow row{.model = "m", .machine = "n", .policy = "h2o", .params = "h2o()", .budget = "10%"};
  row.prompt = 100;
  cost::Estimate estimate;
  estimate.budget = 10;
  estimate.at_end = {.weights = 1000, .keys_values = 200, .padding = 30, .metadata = 4, .page_tables = 5};
  estimate.prefill = {.weights = 1000, .keys_values = 300, .activations = 50};
  estimate.time.prefill[cost::OpClass::linear] = {.seconds = 3, .compute = 2, .memory = 1};
  estimate.time.first_token = 3;
  row.estimate = estimate;
  const Records records = cost_records({row});
  const auto field = [&](const char* key) { return records.rows[0][records.column(key)]; };
  CHECK(field("budget") == Value("10%"));
  CHECK(field("trace") == Value());
  CHECK(field("cache_bytes") == Value(std::uint64_t{239}));
  CHECK(field("end_bytes") == Value(std::uint64_t{1239}));
  CHECK(field("prefill_bytes") == Value(std::uint64_t{1350}));
  CHECK(field("peak_bytes") == Value(std::uint64_t{1350}));
  CHECK(field("fits") == Value("no"));
  CHECK(field("largest_batch") == Value());
  CHECK(field("prefill_linear_bound") == Value("compute"));
  CHECK(field("prefill_policy_bound") == Value());
  CHECK(field("ttft_seconds") == Value(3.0));
}

TEST_CASE("a row without an estimate has its names only") {
  const Records records = cost_records({{.model = "m", .policy = "full", .params = "full()", .prompt = 7}});
  CHECK(records.rows[0][records.column("prompt")] == Value(std::uint64_t{7}));
  CHECK(records.rows[0][records.column("budget")] == Value());
  for (std::size_t i = records.column("fits"); i < records.columns.size(); ++i)
    CHECK(records.rows[0][i] == Value());
}

TEST_CASE("budgets mean shares of the prompt, bytes of a sequence, tokens") {
  const cost::Model model = small_study().model;
  const auto of = [&](const char* policy, const char* text, const cost::Layout& layout = {}) {
    return budget_tokens(sim::parse_budget(text), model, layout,
                         policy::parse_composition(policy, policy::builtin()), 100, 20);
  };
  const auto tokens = [&](const char* text) { return of("h2o", text); };
  CHECK(tokens("29%") == 29);
  CHECK(tokens("17") == 17);
  CHECK(tokens("320B") == 320 / kTokenBytes);
  CHECK(tokens("351B") == 10);
  CHECK_THROWS_AS(tokens("31B"), Error);
  CHECK(tokens("1GiB") == (1 << 30) / kTokenBytes);
  CHECK_THROWS_WITH(tokens("1e300GB"), Catch::Contains("not a budget"));
  CHECK_THROWS_AS(tokens("0.5%"), Error);
  cost::Layout expanded;
  expanded.stored_kv_heads = 2;
  CHECK(of("h2o", "320B", expanded) == 5);
  // Half the bytes hold twice the tokens, at most one more than there are.
  CHECK(of("h2o+fp8", "320B") == 20);
  CHECK(of("h2o+fp8", "1GiB") == 121);
  CHECK(of("h2o+d2o_merge(mass=log)", "360B") == 10);  // 2 bytes more per token and lane
  // Tokens wait in 16 bits until there are four; four coded ones take as much as three that wait, 96 bytes:
  // 16 of codes and 32 of scales in each layer.
  const char* grouped = "h2o+scalar(axis=channel,group=4)";
  CHECK(of(grouped, "95B") == 2);
  CHECK(of(grouped, "96B") == 4);
}

TEST_CASE("every policy at every budget, one with a size of its own once") {
  CostStudy study = small_study();
  CHECK(study.points() == 3);
  CHECK(budgets_of(cost_rows(study)) == std::vector<std::uint64_t>{120, 10, 60});
  study.prompts = {100, 30};
  study.batches = {1, 2};
  CHECK(study.points() == 12);
  const std::vector<CostRow> rows = cost_rows(study);
  // 60 tokens are above the context of 30 + 20.
  CHECK(budgets_of(rows) == std::vector<std::uint64_t>{120, 10, 60, 120, 10, 60, 50, 3, 0, 50, 3, 0});
  CHECK(rows[8].skipped.find("above the context") != std::string::npos);
  CHECK(rows[1].estimate->at_end.keys_values * 2 == rows[4].estimate->at_end.keys_values);
}

TEST_CASE("when no point can be, the first reason is thrown") {
  CostStudy study = small_study();
  study.policies.erase(study.policies.begin());
  study.budgets = sim::parse_budgets("121,122");
  CHECK_THROWS_WITH(cost_rows(study), Catch::Contains("121"));
}

TEST_CASE("limits are told in order: memory, first token, the others") {
  cost::Estimate estimate;
  estimate.prefill.weights = 100;
  estimate.time.first_token = 2;
  estimate.time.per_token = 0.1;
  CHECK(CostLimits{.memory = 99, .first_token = 1}.exceeded_by(estimate) == "memory");
  CHECK(CostLimits{.memory = 100, .first_token = 1}.exceeded_by(estimate) == "ttft");
  CHECK(CostLimits{.memory = 100, .first_token = 2, .per_token = 0.09}.exceeded_by(estimate) == "tpot");
  CHECK(CostLimits{.memory = 100, .first_token = 2, .per_token = 0.1}.exceeded_by(estimate).empty());
}

TEST_CASE("the budget found is the largest: all that are larger exceed a limit") {
  CostStudy study = small_study();
  study.policies.erase(study.policies.begin());
  study.budgets.clear();
  const auto peak_at = [&](std::uint64_t tokens) {
    CostStudy one = study;
    one.budgets = sim::parse_budgets(std::to_string(tokens));
    return cost_rows(one).front().estimate->peak();
  };
  const std::uint64_t cap = peak_at(60);
  const CostFit fit = cost_fits(study, {.memory = cap}).front();
  CHECK(fit.meets);
  for (std::uint64_t tokens = 1; tokens <= 120; ++tokens)
    CHECK((peak_at(tokens) <= cap) == (tokens <= fit.row.estimate->budget));
  CHECK(fit.limit == (fit.row.estimate->budget < 120 ? "memory" : ""));

  const CostFit none = cost_fits(study, {.memory = 1}).front();
  CHECK_FALSE(none.meets);
  CHECK(none.limit == "memory");
  CHECK(none.row.estimate->budget == study.policies.front().floor());
  CHECK(none.row.largest_batch == 0U);
  CHECK_FALSE(none.largest_batch_tokens_per_second);
}

}  // namespace kvsim::analysis::test_cost_rows
