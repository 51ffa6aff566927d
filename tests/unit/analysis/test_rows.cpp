#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "analysis/results/rows.hpp"
#include "tests/unit/analysis/worked_outcome.hpp"

namespace kvsim::analysis::test_rows {

using kvsim::test::worked_outcome;
using kvsim::test::worked_request;

namespace {

std::vector<Row> rows_of(const sim::Outcome& outcome, Scope scope) {
  return make_rows("run.h5", worked_request(), outcome, scope);
}

}  // namespace

TEST_CASE("what a cell says of all lanes together stands in its row of scope all") {
  sim::Outcome outcome = worked_outcome();
  outcome.cells[0].holding = policy::Holding::overshoot;
  outcome.cells[0].r_bound = 0.9;
  outcome.cells[0].attention_loss_bound = 0.125;
  const Row all = rows_of(outcome, Scope::all)[0], layer = rows_of(outcome, Scope::layer)[0];
  CHECK(all["r_bound"] == 0.9);
  CHECK(all["attention_loss_bound"] == 0.125);
  CHECK(!layer["r_bound"]);
  CHECK(!layer["attention_loss_bound"]);
  const Records records = records_of({all, layer});
  for (const std::vector<Value>& row : records.rows)
    CHECK(exact_field(row[records.column("holding")], "") == "overshoot");
}

TEST_CASE("a head row is its lane") {
  const std::vector<Row> rows = rows_of(worked_outcome(), Scope::head);
  REQUIRE(rows.size() == 4);
  const Row& row = rows[1];
  CHECK(row.layer == 0U);
  CHECK(row.head == 1U);
  CHECK(row.budget_tokens == 6.0);
  CHECK(*row["r"] == 2.5 / 3.0);
  CHECK(*row["r_oracle"] == 2.75 / 3.0);
  CHECK(*row["isr"] == 2.5 / 3.0 / 2.0);  // log2 of 4 kept candidates
  CHECK(*row["attention_loss"] == 0.125);
  CHECK(*row["attention_loss_oracle"] == 0.125);
  CHECK(*row["output_error"] == 0.25);
  CHECK(*row["attention_loss_excess"] == 0.0);
  CHECK(row["kept_tokens"] == 6.0);
  CHECK(row["held_tokens"] == 8.0);
  CHECK(row["evicted_tokens"] == 18.0);  // of 24 + 2
  CHECK(*row["output_cosine"] == 0.5);
  CHECK(row["kept_bytes"] == 6U * 32U);
  CHECK(*row["oracle_cosine"] == 0.75);
  CHECK(rows[2].layer == 1U);
  CHECK(rows[2].head == 0U);
}

TEST_CASE("a layer row sums importance over its lanes and averages losses") {
  const std::vector<Row> rows = rows_of(worked_outcome(), Scope::layer);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].layer == 0U);
  CHECK_FALSE(rows[0].head);
  CHECK(*rows[0]["r"] == 0.75);                 // (0.5 + 2.5) / (1 + 3), not the mean of 1/2 and 5/6
  CHECK(*rows[0]["r_oracle"] == 0.875);         // (0.75 + 2.75) / 4
  CHECK(*rows[0]["isr"] == 0.375);              // 0.75 / log2 4
  CHECK(*rows[0]["attention_loss"] == 0.1875);  // mean of 0.25 and 0.125
  CHECK(*rows[0]["attention_loss_oracle"] == 0.125);
  CHECK(*rows[0]["output_error"] == 0.375);
  CHECK(rows[0]["kept_bytes"] == 12U * 32U);
  CHECK(*rows[1]["r"] == 0.375);
  CHECK(*rows[1]["isr"] == 0.375);  // log2 2
  CHECK(rows[1].budget_tokens == 4.0);
  CHECK(rows[1]["kept_tokens"] == 3.5);
  CHECK(rows[1]["kept_bytes"] == 7U * 32U);
}

TEST_CASE("the whole model is the unweighted mean over layers") {
  const std::vector<Row> rows = rows_of(worked_outcome(), Scope::all);
  REQUIRE(rows.size() == 1);
  const Row& row = rows[0];
  CHECK_FALSE(row.layer);
  CHECK_FALSE(row.head);
  CHECK(row.trace == "run.h5");
  CHECK(row.policy == "snapkv");
  CHECK(row.params == "snapkv(window=8,pool=max:7)+uniform()");
  CHECK(row.budget == "20%");
  CHECK(row.budget_tokens == 5.0);  // as asked
  CHECK(*row["r"] == 0.5625);       // R_avg = (0.75 + 0.375) / 2
  CHECK(*row["r_oracle"] == (0.875 + 0.5) / 2);
  CHECK(*row["isr"] == 0.375);
  CHECK(*row["attention_loss"] == (0.1875 + 0.375) / 2);
  CHECK(*row["attention_loss_oracle"] == (0.125 + 0.125) / 2);
  CHECK(*row["output_error"] == (0.375 + 0.5) / 2);
  CHECK(row["kept_tokens"] == 4.75);
  CHECK(row["held_tokens"] == 6.75);
  CHECK(row["evicted_tokens"] == 19.25);
  CHECK(*row["output_cosine"] == 0.5);
  CHECK(row["kept_bytes"] == 19U * 32U);
  CHECK(row.cut == "question");
  CHECK(row.instruction_before == 3U);
}

TEST_CASE("bytes that are sent are those of all lanes of a scope, where every codec says them") {
  sim::Outcome outcome = worked_outcome();
  std::vector<sim::LaneOutcome>& lanes = outcome.cells[0].lanes;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i].stored.emplace();
    lanes[i].stored->sent_bits = 8.0 * static_cast<double>(10 * (i + 1)) + 0.5;
  }
  CHECK(rows_of(outcome, Scope::head)[1]["sent_bytes"] == 21U);            // 20 bytes and half a bit
  CHECK(rows_of(outcome, Scope::layer)[0]["sent_bytes"] == 10U + 20 + 1);  // one bit
  CHECK(rows_of(outcome, Scope::all)[0]["sent_bytes"] == 100U + 1);        // two bits
  lanes[3].stored->sent_bits.reset();
  CHECK(rows_of(outcome, Scope::layer)[0]["sent_bytes"]);
  CHECK_FALSE(rows_of(outcome, Scope::layer)[1]["sent_bytes"]);
  CHECK_FALSE(rows_of(outcome, Scope::all)[0]["sent_bytes"]);
  CHECK_FALSE(rows_of(worked_outcome(), Scope::all)[0]["sent_bytes"]);
}

TEST_CASE("evidence loss is what fell on dropped positions of all that was paid, lanes by what they paid") {
  sim::Outcome outcome = worked_outcome();
  outcome.evidence_tokens = 2;
  std::vector<sim::LaneOutcome>& lanes = outcome.cells[0].lanes;
  lanes[0].evidence = {1.0, 0.25};
  lanes[1].evidence = {3.0, 0.0};
  lanes[2].evidence = {0.0, 0.0};
  lanes[3].evidence = {12.0, 3.75};
  lanes[0].holds_evidence = {1, 0};
  lanes[1].holds_evidence = {1, 0};
  lanes[2].holds_evidence = {0, 0};
  lanes[3].holds_evidence = {1, 0};
  const std::vector<Row> heads = rows_of(outcome, Scope::head), layers = rows_of(outcome, Scope::layer);
  const Row whole = rows_of(outcome, Scope::all)[0];
  CHECK(heads[0]["evidence_loss"] == 0.25);
  CHECK(heads[1]["evidence_loss"] == 0.0);
  CHECK_FALSE(heads[2]["evidence_loss"]);       // paid nothing
  CHECK(layers[0]["evidence_loss"] == 0.0625);  // 0.25 / 4
  CHECK(layers[1]["evidence_loss"] == 0.3125);  // 3.75 / 12
  CHECK(whole["evidence_loss"] == 0.25);        // 4 / 16, not the mean over layers, 0.1875
  CHECK(heads[2]["evidence_held"] == 0.0);
  CHECK(heads[3]["evidence_held"] == 0.5);
  CHECK(layers[1]["evidence_held"] == 0.25);  // (1 / 2 + 0) / 2
  CHECK(whole["evidence_held"] == 0.375);     // (3 / 4 + 0) / 2
  CHECK(heads[2]["evidence_nowhere"] == 1.0);
  CHECK(layers[1]["evidence_nowhere"] == 0.5);  // lane 3 has the first token, no lane the second
  CHECK(whole["evidence_nowhere"] == 0.5);
  SECTION("without marked tokens nothing is said of them") {
    outcome.evidence_tokens = 0;
    for (const Scope scope : {Scope::all, Scope::layer, Scope::head})
      for (const Row& row : rows_of(outcome, scope))
        CHECK_FALSE((row["evidence_loss"] || row["evidence_held"] || row["evidence_nowhere"]));
  }
  SECTION("nor where nothing was measured") {
    for (sim::LaneOutcome& lane : lanes) {
      lane.steps = 0;
      lane.evidence = {};
    }
    const Row row = rows_of(outcome, Scope::all)[0];
    CHECK_FALSE((row["evidence_loss"] || row["evidence_held"] || row["evidence_nowhere"]));
  }
}

TEST_CASE("tokens that are nowhere, of those in sight: over all lanes, and within layers") {
  sim::Outcome outcome = worked_outcome();  // 24 prompt tokens, two more
  outcome.evidence_tokens = 2;
  std::vector<sim::LaneOutcome>& lanes = outcome.cells[0].lanes;
  // Layer 1 has a window of 6 tokens: it sees the last 4 of the prompt, and the second evidence token.
  for (const std::size_t lane : {2U, 3U}) lanes[lane].whole_at_end = 6;
  const std::uint64_t prompt[] = {0x0000ff, 0x00000f, 0x100000, 0x300000};
  const std::vector<std::uint8_t> evidence[] = {{1, 0}, {0, 0}, {0, 1}, {0, 0}};
  for (std::size_t lane = 0; lane < 4; ++lane) {
    lanes[lane].holds_prompt = {prompt[lane]};
    lanes[lane].holds_evidence = evidence[lane];
    lanes[lane].evidence_in_sight = lane < 2 ? 2 : 1;
  }
  const std::vector<Row> heads = rows_of(outcome, Scope::head), layers = rows_of(outcome, Scope::layer);
  const Row whole = rows_of(outcome, Scope::all)[0];
  CHECK(*heads[0]["prompt_nowhere"] == Approx(16.0 / 24));
  CHECK(*heads[1]["prompt_nowhere"] == Approx(20.0 / 24));
  CHECK(heads[2]["prompt_nowhere"] == 0.75);
  CHECK(*layers[0]["prompt_nowhere"] == Approx(16.0 / 24));
  CHECK(layers[1]["prompt_nowhere"] == 0.5);
  CHECK(*whole["prompt_nowhere"] == Approx(14.0 / 24));  // 8 and 2 are somewhere
  CHECK(*whole["prompt_nowhere_in_layer"] == Approx((16.0 + 2) / (24 + 4)));
  CHECK(layers[0]["evidence_nowhere_in_layer"] == 0.5);
  CHECK(layers[1]["evidence_nowhere_in_layer"] == 0.0);
  CHECK(*whole["evidence_nowhere_in_layer"] == Approx(1.0 / 3));
  CHECK(whole["evidence_nowhere"] == 0.0);
  SECTION("a full cache leaves none") {
    for (std::size_t lane = 0; lane < 4; ++lane)
      lanes[lane].holds_prompt = {lane < 2 ? 0xffffffU : 0xf00000U};
    for (const Scope scope : {Scope::all, Scope::layer, Scope::head})
      for (const Row& row : rows_of(outcome, scope)) {
        CHECK(row["prompt_nowhere"] == 0.0);
        CHECK(row["prompt_nowhere_in_layer"] == 0.0);
      }
  }
  SECTION("a layer that sees none of the tokens has no value and counts for nothing") {
    for (const std::size_t lane : {2U, 3U}) {
      lanes[lane].whole_at_end = 2;
      lanes[lane].holds_prompt = {0};
    }
    CHECK_FALSE(rows_of(outcome, Scope::layer)[1]["prompt_nowhere"]);
    CHECK(*rows_of(outcome, Scope::all)[0]["prompt_nowhere_in_layer"] == Approx(16.0 / 24));
  }
}

TEST_CASE("direction is a mean over the rows of all lanes by weight, undefined where none has lost any") {
  sim::Outcome outcome = worked_outcome();
  CHECK_FALSE(rows_of(outcome, Scope::all)[0]["direction_error"]);
  outcome.cells[0].lanes[0].direction = {3, 1.5, -1.5};
  outcome.cells[0].lanes[3].direction = {1, 2.5, 0.5};
  const std::vector<Row> layers = rows_of(outcome, Scope::layer);
  CHECK(layers[0]["direction_error"] == 0.5);
  CHECK(layers[0]["direction_cosine"] == -0.5);
  CHECK(layers[1]["direction_error"] == 2.5);
  CHECK(rows_of(outcome, Scope::all)[0]["direction_error"] == 1.0);  // 4 / 4, not the mean over layers, 1.5
  CHECK(rows_of(outcome, Scope::all)[0]["direction_cosine"] == -0.25);
  CHECK_FALSE(rows_of(outcome, Scope::head)[1]["direction_cosine"]);
}

TEST_CASE("peak loss and its relatives are ratios of sums; by head, a mean over heads that have a peak") {
  sim::Outcome outcome = worked_outcome();
  std::vector<sim::LaneOutcome>& lanes = outcome.cells[0].lanes;
  lanes[0].peak = {{2.0, 1.0}, {1.0, 0.25}, {4.0, 1.0}, 0.5, {{0.0, 0.0}, {2.0, 1.0}}};
  lanes[1].peak = {{6.0, 1.0}, {3.0, 0.75}, {12.0, 1.0}, 0.25, {{2.0, 1.0}, {4.0, 0.0}}};
  lanes[2].peak = {{0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}, 0.0, {{0.0, 0.0}, {0.0, 0.0}}};
  lanes[3].peak = {{0.0, 0.0}, {0.0, 0.0}, {16.0, 14.0}, 0.0, {{0.0, 0.0}, {0.0, 0.0}}};
  const std::vector<Row> heads = rows_of(outcome, Scope::head), layers = rows_of(outcome, Scope::layer);
  const Row whole = rows_of(outcome, Scope::all)[0];
  CHECK(heads[0]["peak_loss"] == 0.5);
  CHECK(layers[0]["peak_loss"] == 0.25);  // 2 / 8
  CHECK(whole["peak_loss"] == 0.25);      // layer 1 has no peak and no say
  CHECK(heads[0]["peak_loss_weighted"] == 0.25);
  CHECK(whole["peak_loss_weighted"] == 0.25);  // 1 / 4
  CHECK(layers[0]["peak_loss_low"] == 0.125);  // 2 / 16
  CHECK(layers[1]["peak_loss_low"] == 0.875);
  CHECK(whole["peak_loss_low"] == 0.5);            // 16 / 32
  CHECK(heads[0]["peak_loss_by_head"] == 0.5);     // of its one head with a peak
  CHECK(whole["peak_loss_by_head"] == 0.5 / 1.5);  // (1/2 + 1/2 + 0) / 3
  CHECK(heads[0]["peak_loss_output"] == 0.25);     // 0.5 / 2
  CHECK(whole["peak_loss_output"] == 0.09375);     // 0.75 / 8
  for (const Row* none : {&heads[2], &heads[3], &layers[1]})
    CHECK_FALSE(((*none)["peak_loss"] || (*none)["peak_loss_weighted"] || (*none)["peak_loss_by_head"] ||
                 (*none)["peak_loss_output"]));
  CHECK_FALSE(heads[2]["peak_loss_low"]);
}

TEST_CASE("of each kind of token, the share that is kept") {
  sim::Outcome outcome = worked_outcome();
  outcome.segment_tokens = {1, 16, 0, 4};
  std::vector<sim::LaneOutcome>& lanes = outcome.cells[0].lanes;
  lanes[0].kept_of = {1, 4, 0, 1};
  lanes[1].kept_of = {1, 2, 0, 3};
  lanes[2].kept_of = {0, 4, 0, 0};
  lanes[3].kept_of = {0, 2, 0, 1};
  const Row head = rows_of(outcome, Scope::head)[1], whole = rows_of(outcome, Scope::all)[0];
  CHECK(head["kept_special"] == 1.0);
  CHECK(head["kept_context"] == 0.125);
  CHECK(head["kept_template"] == 0.75);
  CHECK(whole["kept_special"] == 0.5);
  CHECK(whole["kept_context"] == 0.1875);  // 12 of 4 times 16
  CHECK(whole["kept_template"] == 0.3125);
  CHECK_FALSE(whole["kept_question"]);  // the prompt has none
}

TEST_CASE("outputs after the projection are a layer's: none per head, means over layers above") {
  sim::Outcome outcome = worked_outcome();
  for (const Scope scope : {Scope::all, Scope::layer})
    CHECK_FALSE(rows_of(outcome, scope)[0]["projected_output_error"]);  // no output weights
  outcome.cells[0].layers = {{0.5, 1.5}, {1.0, 0.5}};                   // sums over two steps
  const std::vector<Row> layers = rows_of(outcome, Scope::layer);
  CHECK(layers[0]["projected_output_error"] == 0.25);
  CHECK(layers[0]["projected_output_cosine"] == 0.75);
  CHECK(rows_of(outcome, Scope::all)[0]["projected_output_error"] == 0.375);
  CHECK(rows_of(outcome, Scope::all)[0]["projected_output_cosine"] == 0.5);
  CHECK_FALSE(rows_of(outcome, Scope::head)[0]["projected_output_error"]);
}

TEST_CASE("R_avg weighs layers alike however much importance they hold") {
  sim::Outcome outcome = worked_outcome();
  for (std::size_t lane : {0U, 1U}) {
    outcome.cells[0].lanes[lane].importance *= 100;
    outcome.cells[0].lanes[lane].importance_kept *= 100;
  }
  CHECK(*rows_of(outcome, Scope::all)[0]["r"] == Approx(0.5625));
}

TEST_CASE("undefined stays undefined") {
  sim::Outcome outcome = worked_outcome();
  SECTION("ISR needs more than one kept candidate") {
    outcome.cells[0].lanes[2].kept_candidates = 1;
    outcome.cells[0].lanes[3].kept_candidates = 1;
    const std::vector<Row> layers = rows_of(outcome, Scope::layer);
    CHECK(layers[0]["isr"]);
    CHECK_FALSE(layers[1]["isr"]);
    CHECK(layers[1]["r"]);
    CHECK_FALSE(rows_of(outcome, Scope::all)[0]["isr"]);
    CHECK(rows_of(outcome, Scope::all)[0]["r"]);
    CHECK_FALSE(rows_of(outcome, Scope::head)[2]["isr"]);
  }
  SECTION("ISR of a layer takes the mean of kept candidates") {
    outcome.cells[0].lanes[2].kept_candidates = 1;
    outcome.cells[0].lanes[3].kept_candidates = 7;
    CHECK(*rows_of(outcome, Scope::layer)[1]["isr"] == 0.375 / 2);  // log2 of (1 + 7) / 2
  }
  SECTION("no importance, no retention") {
    for (std::size_t lane : {2U, 3U}) {
      outcome.cells[0].lanes[lane].candidates = 0;
      outcome.cells[0].lanes[lane].importance = 0;
      outcome.cells[0].lanes[lane].importance_kept = 0;
      outcome.cells[0].lanes[lane].importance_oracle = 0;
    }
    CHECK(rows_of(outcome, Scope::layer)[0]["r"]);
    CHECK_FALSE(rows_of(outcome, Scope::layer)[1]["r"]);
    CHECK_FALSE(rows_of(outcome, Scope::layer)[1]["r_oracle"]);
    CHECK_FALSE(rows_of(outcome, Scope::all)[0]["r"]);
    CHECK_FALSE(rows_of(outcome, Scope::all)[0]["r_oracle"]);
  }
  SECTION("one lane without importance does not undefine its layer") {
    outcome.cells[0].lanes[2].importance = 0;
    outcome.cells[0].lanes[2].importance_kept = 0;
    CHECK(*rows_of(outcome, Scope::layer)[1]["r"] == 0.5);
    CHECK_FALSE(rows_of(outcome, Scope::head)[2]["r"]);
  }
  SECTION("nothing was decoded") {
    outcome.decode = 0;
    for (sim::LaneOutcome& lane : outcome.cells[0].lanes) lane.steps = 0;
    for (const Scope scope : {Scope::all, Scope::layer, Scope::head}) {
      for (const Row& row : rows_of(outcome, scope)) {
        CHECK_FALSE(row["attention_loss"]);
        CHECK_FALSE(row["attention_loss_oracle"]);
        CHECK_FALSE(row["attention_loss_excess"]);
        CHECK_FALSE((row["output_error"] || row["output_cosine"]));
        CHECK(row["r"]);
      }
    }
  }
}

TEST_CASE("a skipped cell keeps its rows and its reason") {
  sim::Outcome outcome = worked_outcome();
  outcome.cells[0] = sim::CellOutcome{};
  outcome.cells[0].skipped = "budget of 5 tokens is below the window of 8";
  outcome.cells[0].asked_tokens = 5;
  CHECK(rows_of(outcome, Scope::all).size() == 1);
  CHECK(rows_of(outcome, Scope::layer).size() == 2);
  const std::vector<Row> heads = rows_of(outcome, Scope::head);
  REQUIRE(heads.size() == 4);
  CHECK(heads[3].layer == 1U);
  CHECK(heads[3].head == 1U);
  CHECK_FALSE(heads[3]["allotted_tokens"]);
  CHECK(heads[3].skipped == outcome.cells[0].skipped);
  CHECK_FALSE(heads[3]["r"]);
  CHECK_FALSE(heads[3]["kept_tokens"]);
  CHECK_FALSE(heads[3]["kept_bytes"]);
  CHECK(rows_of(outcome, Scope::all)[0].budget_tokens == 5.0);
}

TEST_CASE("what was allotted is told apart from what was asked for") {
  sim::Outcome outcome = worked_outcome();
  // 6 and 6, 4 and 4, of a prompt of 24; 5 per lane were asked for and given.
  CHECK(rows_of(outcome, Scope::all)[0]["allotted_tokens"] == 5.0);
  CHECK(rows_of(outcome, Scope::layer)[0]["allotted_tokens"] == 6.0);
  // A formula that spends more: 8 instead of 6 in one lane.
  outcome.cells[0].lanes[0].budget_tokens = 8;
  CHECK(rows_of(outcome, Scope::all)[0]["allotted_tokens"] == 5.5);
  CHECK(rows_of(outcome, Scope::all)[0].budget_tokens == 5.0);
  // A lane that never evicts has the whole sequence, of which the prompt counts.
  outcome.cells[0].lanes[0].budget_tokens = 26;
  CHECK(rows_of(outcome, Scope::head)[0]["allotted_tokens"] == 24.0);
  // A budget beyond the prompt is given as asked.
  outcome.cells[0].most_given = 30;
  for (sim::LaneOutcome& lane : outcome.cells[0].lanes) lane.budget_tokens = 30;
  CHECK(rows_of(outcome, Scope::all)[0]["allotted_tokens"] == 30.0);
}

TEST_CASE("a step row is the mean over layers of the mean over lanes at that step") {
  sim::Outcome outcome = worked_outcome();
  // Sums of the two steps as in the worked lanes: 0.5, 0.25 | 1, 0.5.
  std::vector<sim::LaneOutcome>& lanes = outcome.cells[0].lanes;
  lanes[0].each_step = {{0.5, 0.25, 7}, {0, 0, 8}};
  lanes[1].each_step = {{0.25, 0.25, 7}, {0, 0, 8}};
  lanes[2].each_step = {{0.25, 0, 5}, {0.75, 0.5, 6}};
  lanes[3].each_step = {{0, 0, 4}, {0.5, 0, 5}};
  const std::vector<Row> rows = rows_of(outcome, Scope::step);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].step == 1U);
  CHECK(rows[1].step == 2U);
  CHECK(rows[0]["attention_loss"] == 0.25);          // (0.5 + 0.25 + 0.25 + 0) / 4
  CHECK(rows[0]["attention_loss_oracle"] == 0.125);  // (0.25 + 0.25) / 4
  CHECK(rows[1]["attention_loss"] == 0.3125);        // (0.75 + 0.5) / 4
  CHECK(rows[1]["attention_loss_oracle"] == 0.125);
  CHECK(rows[0]["kept_tokens"] == 5.75);
  CHECK(rows[1]["kept_tokens"] == 6.75);
  CHECK(rows[0].budget_tokens == 5.0);
  const Row whole = rows_of(outcome, Scope::all)[0];
  CHECK(*whole["attention_loss"] == (*rows[0]["attention_loss"] + *rows[1]["attention_loss"]) / 2);
  CHECK(*whole["attention_loss_oracle"] ==
        (*rows[0]["attention_loss_oracle"] + *rows[1]["attention_loss_oracle"]) / 2);
  for (const Row& row : rows) {
    CHECK_FALSE((row.layer || row.head || row["r"] || row["r_oracle"] || row["isr"]));
    CHECK_FALSE((row["output_error"] || row["kept_bytes"] || row["oracle_cosine"] || row["allotted_tokens"]));
  }
  SECTION("a skipped cell has its steps") {
    outcome.cells[0] = sim::CellOutcome{};
    outcome.cells[0].skipped = "no";
    const std::vector<Row> skipped = rows_of(outcome, Scope::step);
    REQUIRE(skipped.size() == 2);
    CHECK(skipped[1].step == 2U);
    CHECK(skipped[1].skipped == "no");
    CHECK_FALSE(skipped[1]["attention_loss"]);
  }
  SECTION("the last prompt row is step 0 where it is measured again") {
    outcome.first_step = 0;
    outcome.decode = 1;
    const std::vector<Row> from_zero = rows_of(outcome, Scope::step);
    REQUIRE(from_zero.size() == 2);
    CHECK(from_zero[0].step == 0U);
    CHECK(from_zero[1].step == 1U);
    CHECK(from_zero[0]["attention_loss"] == 0.25);
  }
  SECTION("evidence of the step alone") {
    lanes[0].each_step[1].evidence = {0.5, 0.25};
    lanes[3].each_step[1].evidence = {1.5, 0.25};
    const std::vector<Row> marked = rows_of(outcome, Scope::step);
    CHECK_FALSE(marked[0]["evidence_loss"]);
    CHECK(marked[1]["evidence_loss"] == 0.25);
  }
  SECTION("without measured steps there is nothing to say") {
    outcome.decode = 0;
    for (sim::LaneOutcome& lane : lanes) lane.each_step.clear();
    CHECK(rows_of(outcome, Scope::step).empty());
  }
  SECTION("an outcome without them does not fit") {
    lanes[2].each_step.clear();
    CHECK_THROWS_AS(rows_of(outcome, Scope::step), Error);
  }
}

TEST_CASE("rows come in the order of the request") {
  sim::Request request;
  sim::Outcome outcome = worked_outcome();
  request.cells = {test::worked_cell("b", "b()+uniform()", "1"), test::worked_cell("a", "a()+uniform()", "1"),
                   test::worked_cell("b", "b()+uniform()", "2")};
  outcome.cells.resize(3, outcome.cells[0]);
  std::string order;
  for (const Row& row : make_rows("t", request, outcome, Scope::layer))
    order += row.policy + row.budget + std::to_string(*row.layer) + ' ';
  CHECK(order == "b10 b11 a10 a11 b20 b21 ");
}

TEST_CASE("an outcome that does not fit is a bug, not a crash") {
  sim::Outcome no_cells = worked_outcome(), lane_short = worked_outcome(), no_layers = worked_outcome();
  no_cells.cells.clear();
  lane_short.cells[0].lanes.pop_back();
  no_layers.n_layers = 0;
  CHECK_THROWS_AS(rows_of(no_cells, Scope::all), Error);
  CHECK_THROWS_AS(rows_of(lane_short, Scope::all), Error);
  CHECK_THROWS_AS(rows_of(no_layers, Scope::all), Error);
}

TEST_CASE("scopes are parsed by name") {
  for (const Scope scope : {Scope::all, Scope::layer, Scope::head, Scope::step})
    CHECK(parse_scope(scope_name(scope)) == scope);
  CHECK_THROWS_WITH(parse_scope("layers"),
                    Catch::Contains("layers") && Catch::Contains("Did you mean layer"));
}

TEST_CASE("rows have the columns and units that are promised, in that order, and each says what it means") {
  std::ifstream file(KVSIM_SOURCE_DIR "/tests/golden/columns.csv");
  std::vector<std::string> promised, declared;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("replay,")) promised.push_back(line);
  for (const ColumnInfo& column : records_of({}).columns) {
    declared.push_back("replay," + column.key + "," + column.unit);
    CHECK_FALSE(column.description.empty());
  }
  CHECK(promised == declared);
}

}  // namespace kvsim::analysis::test_rows
