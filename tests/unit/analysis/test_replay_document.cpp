#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <map>
#include <sstream>

#include "analysis/results/replay_document.hpp"
#include "sim/base/message_text.hpp"
#include "tests/unit/analysis/worked_outcome.hpp"

namespace kvsim::analysis::test_replay_document {
namespace {

Row sample_row() {
  Row row;
  row.trace = "run.h5";
  row.policy = "snapkv";
  row.params = "snapkv(window=8,pool=max:7)+uniform()";
  row.budget = "25%";
  row.budget_tokens = 6;
  row.set("allotted_tokens", 6.0);
  row.set("r", 0.5625);
  row.set("r_oracle", 0.6875);
  row.set("isr", 1.0 / 3.0);
  row.set("attention_loss", 0.25);
  row.set("attention_loss_oracle", 0.125);
  row.set("output_error", 0.5);
  row.set("kept_tokens", 5.5);
  row.set("kept_bytes", 704.0);
  row.set("oracle_cosine", 0.875);
  row.seed = 7;
  row.set("held_tokens", 7.5);
  row.cut = "question";
  row.set("evidence_loss", 0.75);
  row.set("evicted_tokens", 18.5);
  row.instruction_before = 3;
  return row;
}

ReplayInputs sample_inputs() {
  ReplayInputs inputs;
  inputs.traces = {{"run.h5", "ab12", 24, 2, "question"}};
  inputs.policies = {"snapkv(window=8,pool=max:7)+uniform()"};
  inputs.budgets = {"25%"};
  inputs.seed = 7;
  inputs.importance = "rows=8";
  inputs.peak = "threshold=0.5";
  return inputs;
}

std::string written(Format format, const std::vector<Row>& rows) {
  std::ostringstream out;
  write_document(out, format, replay_document(rows, sample_inputs()));
  return out.str();
}

/// Fields of sample_row() that are defined, as machines read them.
std::map<std::string, std::string> sample_fields() {
  return {{"trace", "run.h5"},
          {"policy", "snapkv"},
          {"budget", "25%"},
          {"budget_kind", "share"},
          {"budget_number", "0.25"},
          {"params", "snapkv(window=8,pool=max:7)+uniform()"},
          {"budget_tokens", "6"},
          {"cut", "question"},
          {"scope", "all"},
          {"evidence_loss", "0.75"},
          {"r", "0.5625"},
          {"r_oracle", "0.6875"},
          {"isr", "0.3333333333333333"},
          {"attention_loss", "0.25"},
          {"attention_loss_oracle", "0.125"},
          {"output_error", "0.5"},
          {"kept_tokens", "5.5"},
          {"kept_bytes", "704"},
          {"oracle_cosine", "0.875"},
          {"allotted_tokens", "6"},
          {"seed", "7"},
          {"role", "policy"},
          {"held_tokens", "7.5"},
          {"evicted_tokens", "18.5"},
          {"instruction_before", "3"}};
}

/// Every column's text, in order: that of `fields`, or `undefined`.
std::vector<std::string> line_of(const std::map<std::string, std::string>& fields, const char* undefined) {
  std::vector<std::string> out;
  for (const ColumnInfo& column : records_of({}).columns) {
    const auto found = fields.find(column.key);
    out.push_back(found == fields.end() ? undefined : found->second);
  }
  return out;
}

std::string keys(const char* separator) {
  std::vector<std::string> out;
  for (const ColumnInfo& column : records_of({}).columns) out.push_back(column.key);
  return joined(out, separator);
}

}  // namespace

TEST_CASE("csv: keys, exact numbers, quotes where commas are, nothing where undefined") {
  std::map<std::string, std::string> fields = sample_fields();
  fields["params"] = "\"" + fields["params"] + "\"";
  CHECK(written(Format::csv, {sample_row()}) == keys(",") + "\n" + joined(line_of(fields, ""), ",") + "\n");
  Row odd = sample_row();
  odd.trace = "a \"b\"\nc";
  odd.params = "full()+uniform()";
  odd.layer = 3;
  odd.scope = Scope::layer;
  for (const char* key : {"r", "isr", "attention_loss"}) {
    odd.set(key, {});
    fields.erase(key);
  }
  fields["trace"] = "\"a \"\"b\"\"\nc\"";
  fields["params"] = odd.params;
  fields["layer"] = "3";
  fields["scope"] = "layer";
  CHECK(written(Format::csv, {odd}) == keys(",") + "\n" + joined(line_of(fields, ""), ",") + "\n");
  CHECK(written(Format::csv, {}) == keys(",") + "\n");
}

TEST_CASE("json: one document of version, inputs and results") {
  std::map<std::string, std::string> fields = sample_fields();
  for (const char* key : {"trace", "policy", "params", "budget", "budget_kind", "cut", "scope", "role"})
    fields[key] = "\"" + fields[key] + "\"";
  std::vector<std::string> members = line_of(fields, "null");
  for (std::size_t i = 0; i < members.size(); ++i)
    members[i] = "\"" + records_of({}).columns[i].key + "\": " + members[i];
  CHECK(written(Format::json, {sample_row(), sample_row()}) == R"doc({
  "schema_version": 3,
  "inputs": {
    "loop": "open",
    "traces": [
      {"trace": "run.h5", "content_sha256": "ab12", "prompt": 24, "decode": 2, "cut": "question"}
    ],
    "policies": ["snapkv(window=8,pool=max:7)+uniform()"],
    "budgets": ["25%"],
    "scope": "all",
    "seed": 7,
    "importance": "rows=8",
    "peak": "threshold=0.5"
  },
  "results": [
    {)doc" + joined(members, ", ") + "},\n    {" + joined(members, ", ") +
                                                                   "}\n  ]\n}\n");
}

TEST_CASE("json reads back to the same numbers") {
  Row row = sample_row();
  row.set("r", 0.1 + 0.2);
  row.set("attention_loss", 1e-300);
  row.set("kept_bytes", std::uint64_t{9007199254740993});  // beyond what a double holds
  row.trace = "odd \"name\"\t.h5";
  const boost::json::value document = boost::json::parse(written(Format::json, {row}));
  const boost::json::object& result = document.at("results").at(0).as_object();
  CHECK(result.at("r").as_double() == 0.1 + 0.2);
  CHECK(result.at("attention_loss").as_double() == 1e-300);
  CHECK(result.at("kept_bytes").as_int64() == std::uint64_t{9007199254740993});
  CHECK(result.at("trace").as_string() == row.trace);
  CHECK(result.at("head").is_null());
  CHECK(boost::json::parse(written(Format::json, {})).at("results").as_array().empty());
}

TEST_CASE("json tells an unknown hash as null") {
  ReplayInputs inputs = sample_inputs();
  inputs.traces[0].content_sha256.clear();
  std::ostringstream out;
  const std::vector<Row> none;
  write_document(out, Format::json, replay_document(none, inputs));
  CHECK(boost::json::parse(out.str()).at("inputs").at("traces").at(0).at("content_sha256").is_null());
}

TEST_CASE("jsonl: the results of json, one per line") {
  const std::vector<Row> rows = {sample_row(), sample_row()};
  std::istringstream lines(written(Format::jsonl, rows));
  const boost::json::value document = boost::json::parse(written(Format::json, rows));
  std::string line;
  std::size_t n = 0;
  while (std::getline(lines, line)) CHECK(boost::json::parse(line) == document.at("results").at(n++));
  CHECK(n == 2);
}

TEST_CASE("md: a GitHub table with every column") {
  Row row = sample_row();
  row.trace = "a|b.h5";
  row.set("r", {});
  std::map<std::string, std::string> fields = sample_fields(), rules;
  fields["trace"] = "a\\|b.h5";
  fields.erase("r");
  for (const char* key : {"trace", "policy", "params", "budget", "budget_kind", "cut", "scope", "role"})
    rules[key] = "---";
  CHECK(written(Format::md, {row}) == "| " + keys(" | ") + " |\n| " + joined(line_of(rules, "---:"), " | ") +
                                          " |\n| " + joined(line_of(fields, "-"), " | ") + " |\n\n" +
                                          std::string(kOpenLoopNote) + "\n");
}

namespace {

Row table_row(const char* policy, const char* params, const char* budget, double tokens, double r,
              double loss) {
  Row row = sample_row();
  row.policy = policy;
  row.params = params;
  row.budget = budget;
  row.budget_tokens = tokens;
  row.set("kept_tokens", tokens);
  row.set("held_tokens", tokens);
  row.set("r", r);
  row.set("attention_loss", loss);
  row.set("evidence_loss", {});
  row.cut = "prompt";
  return row;
}

}  // namespace

TEST_CASE("table: grouped by budget, constants above, best marked, undefined a dash") {
  std::vector<Row> rows = {
      table_row("full", "full()+uniform()", "10%", 12, 1, 0),
      table_row("snapkv", "snapkv(window=8,pool=max:7)+uniform()", "10%", 12, 0.5, 0.25),
      table_row("h2o", "h2o(recent=0.5)+uniform()", "10%", 12, 0.25, 0.5),
      table_row("full", "full()+uniform()", "25%", 30, 1, 0),
      table_row("snapkv", "snapkv(window=8,pool=max:7)+uniform()", "25%", 30, 0.75, 0.125),
      table_row("h2o", "h2o(recent=0.5)+uniform()", "25%", 30, 0.5, 0.00001),
  };
  for (const std::size_t i : {0U, 3U}) {
    rows[i].own_budget = true;
    rows[i].set("kept_tokens", 120.0);
    rows[i].set("held_tokens", 120.0);
    rows[i].set("kept_bytes", 122880.0);
    rows[i].set("attention_loss_oracle", 0.0);
  }
  rows[2].set("isr", {});
  CHECK(written(Format::table, rows) ==
        R"doc(trace run.h5
cut prompt (question known to the policy)

                                               loss                r
                                             oracle           oracle              kept
          attention  output                     own     over     own    kept      size
policy         loss   error       r     isr   split   oracle   split  tokens       KiB
budget 10% (12 tokens per lane)
full        0        0.5000  1       0.3333  0        0       0.6875     120  120
snapkv *    0.2500   0.5000  0.5000  0.3333  0.1250   0.1250  0.6875      12    0.6875
h2o         0.5000   0.5000  0.2500  -       0.1250   0.3750  0.6875      12    0.6875

budget 25% (30 tokens per lane)
full        0        0.5000  1       0.3333  0        0       0.6875     120  120
snapkv      0.1250   0.5000  0.7500  0.3333  0.1250   0       0.6875      30    0.6875
h2o *       1.0e-05  0.5000  0.5000  0.3333  0.1250  -0.1250  0.6875      30    0.6875

* loses least of the policies that have a budget
full = full()+uniform()
snapkv = snapkv(window=8,pool=max:7)+uniform()
h2o = h2o(recent=0.5)+uniform()
Open loop: each recorded query is answered exactly as the compressed cache would answer it; what that answer
would have changed later is not seen.
)doc");
}

TEST_CASE("table: what differs gets its column") {
  SECTION("one name for two parameter sets shows what differs") {
    const std::string text = written(
        Format::table, {table_row("h2o", "h2o(recent=0.5,unit=lane)+pyramid(beta=20)", "9", 9, 0.5, 0.5),
                        table_row("h2o", "h2o(recent=0.5,unit=layer)+pyramid(beta=9)", "9", 9, 0.5, 0.25)});
    CHECK_THAT(text, Catch::Contains("\nh2o(unit=lane,beta=20)  "));
    CHECK_THAT(text, Catch::Contains("\nh2o(unit=layer,beta=9) *"));
    CHECK_THAT(text,
               Catch::Contains("\nh2o(unit=layer,beta=9) = h2o(recent=0.5,unit=layer)+pyramid(beta=9)\n"));
  }
  SECTION("several traces, whose budgets come to different tokens") {
    std::vector<Row> rows = {table_row("h2o", "h2o()+uniform()", "25%", 9, 0.5, 0.5),
                             table_row("h2o", "h2o()+uniform()", "25%", 12.5, 0.5, 0.5)};
    rows[1].trace = "p\xc3\xa9.h5";  // five characters in six bytes
    const std::string text = written(Format::table, rows);
    CHECK_THAT(text, Catch::Contains("budget 25%\nrun.h5     h2o        9  "));
    CHECK_THAT(text, Catch::Contains("\np\xc3\xa9.h5      h2o       12.5"));
    CHECK_THAT(text, !Catch::Contains("trace run.h5"));
    CHECK_THAT(text, Catch::StartsWith("cut prompt (question known to the policy)\n\n"));
  }
  SECTION("several cuts, each of which is a contest of its own") {
    std::vector<Row> rows = {
        table_row("h2o", "h2o()", "25%", 9, 0.5, 0.25), table_row("tova", "tova()", "25%", 9, 0.5, 0.5),
        table_row("h2o", "h2o()", "25%", 6, 0.5, 0.75), table_row("tova", "tova()", "25%", 6, 0.5, 0.5)};
    rows[2].cut = rows[3].cut = "question";
    const std::string text = written(Format::table, rows);
    CHECK_THAT(text, Catch::StartsWith("trace run.h5\n\n"));
    CHECK_THAT(text, Catch::Contains("\nprompt    h2o * ") && Catch::Contains("\nprompt    tova  ") &&
                         Catch::Contains("\nquestion  h2o   ") && Catch::Contains("\nquestion  tova *"));
    CHECK_THAT(text, Catch::Contains("\ncut prompt (question known to the policy)\ncut question "
                                     "(question not known to the policy) with an instruction of 3 tokens "
                                     "before the context\n"));
  }
  SECTION("layers and heads") {
    Row row = table_row("h2o", "h2o()+uniform()", "9", 9, 0.5, 0.5);
    row.scope = Scope::head;
    row.layer = 2;
    row.head = 11;
    CHECK_THAT(written(Format::table, {row}), Catch::Contains("\nh2o         2    11  "));
  }
}

TEST_CASE("table: what is held at the end stands beside what was kept where it is another number") {
  const Row managed = table_row("h2o", "h2o()", "9", 9, 0.5, 0.5);
  CHECK_THAT(written(Format::table, {managed}), !Catch::Contains("held"));
  Row appending = table_row("snapkv", "snapkv()", "9", 9, 0.5, 0.5);
  appending.set("held_tokens", 73.0);
  const std::string text = written(Format::table, {managed, appending});
  CHECK_THAT(text, Catch::Contains("  kept    held  size\n") && Catch::Contains("tokens  tokens     B\n"));
  CHECK_THAT(text, Catch::Contains("  0.6875       9       9   704\n") &&
                       Catch::Contains("  0.6875       9      73   704\n"));
}

TEST_CASE("table: several traces end with their means, in the table alone") {
  std::vector<Row> rows;
  for (const char* trace : {"a.h5", "b.h5", "c.h5"})
    for (const char* budget : {"4", "9"})
      for (const char* policy : {"h2o", "tova"}) {
        rows.push_back(table_row(policy, policy, budget, 9, 0.5, 0.25));
        rows.back().trace = trace;
      }
  rows[0].set("attention_loss", 0.625);                                   // h2o at 4 on a.h5
  for (const char* key : {"attention_loss", "r"}) rows[11].set(key, {});  // tova at 9 on c.h5: was not run
  const std::string text = written(Format::table, rows);
  const std::size_t four = text.find("\nbudget 4"), nine = text.find("\nbudget 9"),
                    end = text.find("\n\n", nine);
  const std::string at_four = text.substr(four, nine - four), at_nine = text.substr(nine, end - nine);
  CHECK_THAT(at_four, Catch::Contains("c.h5       tova") &&
                          Catch::Contains("\nmean of 3  h2o        0.3750") &&
                          Catch::Contains("\nmean of 3  tova *     0.2500"));
  CHECK_THAT(at_nine,
             Catch::Contains("\nmean of 3  h2o        0.2500") &&
                 Catch::EndsWith("\nmean of 3  tova       -       0.5000  -       0.3333  0.1250  -       "
                                 "0.6875       9   704"));
  CHECK(at_four.find("mean") > at_four.find("c.h5       tova"));
  for (const Format format : {Format::csv, Format::json, Format::jsonl, Format::md})
    CHECK_THAT(written(format, rows), !Catch::Contains("mean of"));
  SECTION("cuts and layers have means of their own, and a cut of one trace has none") {
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].cut = i < 4 ? "prompt" : "question";
    const std::string by_cut = written(Format::table, rows);
    CHECK_THAT(by_cut, Catch::Contains("\nmean of 2  question  h2o") && !Catch::Contains("mean of 3") &&
                           !Catch::Contains("mean of 2  prompt"));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].cut = "prompt";
      rows[i].scope = Scope::layer;
      rows[i].layer = i < 6 ? 0 : 1;
    }
    CHECK_THAT(written(Format::table, rows), !Catch::Contains("mean of 3"));
  }
  SECTION("steps have means where every trace has them") {
    std::vector<Row> steps;
    for (const char* trace : {"a.h5", "b.h5"})
      for (const std::uint64_t step : {1U, 2U, 3U}) {
        if (step == 3 && trace[0] == 'b') continue;
        steps.push_back(table_row("h2o", "h2o", "9", 9, 0.5, trace[0] == 'a' ? 0.25 : 0.75));
        steps.back().trace = trace;
        steps.back().scope = Scope::step;
        steps.back().step = step;
      }
    CHECK_THAT(written(Format::table, steps),
               Catch::Contains("\na.h5       h2o     0.2500  0.2500  0.2500  0.2500\n") &&
                   Catch::Contains("\nmean of 2  h2o     0.5000  0.5000  0.5000  -\n"));
  }
}

TEST_CASE("table: the mark") {
  const auto marks = [](const std::vector<Row>& rows) {
    const std::string text = written(Format::table, rows);
    return std::count(text.begin(),
                      text.begin() + static_cast<std::ptrdiff_t>(text.find("\n\n", text.find("budget"))),
                      '*');
  };
  const Row a = table_row("a", "a()+uniform()", "9", 9, 0.5, 0.25),
            b = table_row("b", "b()+uniform()", "9", 9, 0.5, 0.5);
  Row tie = table_row("c", "c()+uniform()", "9", 9, 0.5, 0.25);
  CHECK(marks({a, b}) == 1);
  CHECK(marks({a, b, tie}) == 2);
  CHECK(marks({a, tie}) == 0);  // nothing to win
  CHECK(marks({a}) == 0);
  SECTION("a policy without a budget does not compete") {
    Row full = table_row("full", "full()+uniform()", "9", 9, 1, 0);
    full.own_budget = true;
    CHECK_THAT(written(Format::table, {full, a, b}), Catch::Contains("\na *") && Catch::Contains("\nfull  "));
    CHECK(marks({full, a}) == 0);
  }
  SECTION("without decode steps the best R wins") {
    Row low = a, high = b;
    low.set("attention_loss", {});
    high.set("attention_loss", {});
    high.set("r", 0.75);
    CHECK(marks({low, high}) == 1);
    CHECK_THAT(written(Format::table, {low, high}), Catch::Contains("b *"));
  }
  SECTION("where evidence is marked, it decides, and leads") {
    Row holds = b, drops = a;
    holds.set("evidence_loss", 0.125);
    drops.set("evidence_loss", 0.5);
    holds.set("evidence_held", 0.5);
    drops.set("evidence_held", 0.5);
    const std::string text = written(Format::table, {holds, drops});
    CHECK_THAT(text, Catch::Contains("\nb *       0.1250  ") && Catch::Contains("\na         0.5000  "));
    CHECK_THAT(text, Catch::Contains("\n        evidence  evidence  attention ") &&
                         Catch::Contains("\npolicy      loss      held       loss "));
    CHECK_THAT(text,
               Catch::Contains("\n* loses least of the evidence, of the policies that have a budget\n"));
    CHECK_THAT(written(Format::table, {a, b}), !Catch::Contains("evidence"));
  }
  SECTION("each layer has its own") {
    Row a1 = a, b1 = b;
    a1.scope = b1.scope = Scope::layer;
    a1.layer = b1.layer = 1;
    Row a0 = a1, b0 = b1;
    a0.layer = b0.layer = 0;
    b0.set("attention_loss", 0.125);
    CHECK(marks({a0, a1, b0, b1}) == 2);
  }
}

TEST_CASE("table: a policy that never evicted is named, once") {
  std::vector<Row> rows = {table_row("a", "a()", "9", 9, 0.5, 0.5), table_row("b", "b()", "9", 9, 0.5, 0.25),
                           table_row("b", "b()", "12", 12, 0.5, 0)};
  CHECK_THAT(written(Format::table, rows), !Catch::Contains("never evicted"));
  rows[1].set("evicted_tokens", 0.0);
  rows[2].set("evicted_tokens", 0.0);
  CHECK_THAT(written(Format::table, rows), Catch::Contains("\nnever evicted: b at 9, b at 12\n"));
  rows[1].own_budget = rows[2].own_budget = true;  // it need not
  CHECK_THAT(written(Format::table, rows), !Catch::Contains("never evicted"));
}

TEST_CASE("table: measured steps are columns, the first, powers of two and the last") {
  const auto course = [](const char* policy, double loss, std::uint64_t steps) {
    std::vector<Row> rows;
    for (std::uint64_t step = 1; step <= steps; ++step) {
      Row& row = rows.emplace_back(table_row(policy, policy, "9", 9, 0.5, loss * static_cast<double>(step)));
      row.scope = Scope::step;
      row.step = step;
    }
    return rows;
  };
  std::vector<Row> rows = course("h2o", 0.0625, 11);
  const std::vector<Row> other = course("tova", 0.03125, 11);
  rows.insert(rows.end(), other.begin(), other.end());
  const std::string text = written(Format::table, rows);
  // Means 6 / 16 and 6 / 32 over steps 1 to 11.
  CHECK_THAT(text, Catch::Contains("\n          mean    step    step    step    step    step\n"
                                   "policy    loss       1       2       4       8      11\n"));
  CHECK_THAT(text, Catch::Contains("\nh2o     0.3750  0.0625  0.1250  0.2500  0.5000  0.6875\n"));
  CHECK_THAT(text, Catch::Contains("\ntova *  0.1875  0.0312  0.0625  0.1250  0.2500  0.3438\n"));
  CHECK_THAT(text, !Catch::Contains("layer"));
  CHECK_THAT(written(Format::table, course("h2o", 0.0625, 3)),
             Catch::Contains("\nh2o     0.1250  0.0625  0.1250  0.1875\n"));
  SECTION("from step 0 on where it is measured") {
    std::vector<Row> few = course("h2o", 0.0625, 3), many = course("h2o", 0.0625, 11);
    for (std::vector<Row>* from_zero : {&few, &many})
      for (Row& row : *from_zero) --*row.step;
    CHECK_THAT(written(Format::table, few),
               Catch::Contains("\npolicy    loss       0       1       2\n") &&
                   Catch::Contains("\nh2o     0.1250  0.0625  0.1250  0.1875\n"));
    CHECK_THAT(written(Format::table, many),
               Catch::Contains("\npolicy    loss       0       1       2       4       8      10\n"));
  }
}

TEST_CASE("table: skipped cells say why") {
  Row row = table_row("snapkv", "snapkv()+uniform()", "4", 4, 0.5, 0.5);
  row.set("r", {});
  row.set("attention_loss", {});
  row.set("kept_tokens", {});
  row.skipped = "budget of 4 is below the window";
  CHECK_THAT(written(Format::table, {row}),
             Catch::Contains("skipped: snapkv at 4: budget of 4 is below the window\n"));
}

TEST_CASE("table: policies that outgrow their budget while decoding are named, once") {
  std::vector<Row> rows = {table_row("h2o", "h2o()+uniform()", "4", 4, 0.5, 0.5),
                           table_row("xkv", "xkv()+xkv()", "4", 4, 0.5, 0.5),
                           table_row("snapkv", "snapkv()+uniform()", "4", 4, 0.5, 0.5),
                           table_row("xkv", "xkv()+xkv()", "8", 8, 0.5, 0.5)};
  CHECK_THAT(written(Format::table, rows), !Catch::Contains("beside the budget"));
  rows[0].holding = policy::Holding::managed;
  rows[1].holding = rows[2].holding = rows[3].holding = policy::Holding::append_only;
  CHECK_THAT(written(Format::table, rows),
             Catch::Contains("\nkeep every generated token beside the budget: xkv, snapkv\n"));
}

TEST_CASE("table: every line that people read ends without blanks") {
  std::istringstream lines(written(Format::table, {sample_row()}));
  std::string line;
  while (std::getline(lines, line)) CHECK((line.empty() || line.back() != ' '));
}

TEST_CASE("formats are parsed by name") {
  CHECK(parse_format("jsonl") == Format::jsonl);
  CHECK(parse_format("table") == Format::table);
  CHECK_THROWS_WITH(parse_format("jsn"), Catch::Contains("jsn") && Catch::Contains("Did you mean json"));
}

}  // namespace kvsim::analysis::test_replay_document
