// Tests that lines of RULER and LongBench become items, and that others are refused with their fields.
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "traces/capture/workload_item.hpp"

namespace kvsim::test_benchmark_line {

using capture::WorkloadItem;
using workload::Expect;
using workload::Role;

namespace {

WorkloadItem item_of(const std::string& line) {
  return capture::parse_workload_item(line, "file.jsonl", "");
}

std::string failure(const std::string& line) {
  try {
    item_of(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string part(const WorkloadItem& item, Role role) {
  for (const workload::RoleSpan& span : item.spans)
    if (span.role == role) return item.prompt.substr(span.begin, span.end - span.begin);
  return "";
}

}  // namespace

TEST_CASE("a line of RULER's needles") {
  const WorkloadItem item = item_of(
      R"({"index": 7, "input": "Some numbers are hidden.\nOne is 12.\nWhat is the special magic number for cat?",)"
      R"( "outputs": ["12"], "length": 30, "answer_prefix": " The number is", "token_position_answer": 3})");
  CHECK(item.id == "7");
  CHECK(item.kind == "ruler");
  CHECK(item.prompt ==
        "Some numbers are hidden.\nOne is 12.\nWhat is the special magic number for cat? The number is");
  CHECK(part(item, Role::context) == "Some numbers are hidden.\nOne is 12.\n");
  CHECK(part(item, Role::question) == "What is the special magic number for cat? The number is");
  CHECK(item.answers == std::vector<std::string>{" 12"});
  CHECK(item.expect == Expect::holds_all);
}

TEST_CASE("RULER's question is the last one that is asked, with the instruction before it") {
  const WorkloadItem example = item_of(
      R"({"index": 0, "input": "List\nQuestion: which? a\nList 2\nQuestion: which?", "outputs": ["b"]})");
  CHECK(part(example, Role::question) == "Question: which?");
  const WorkloadItem documents = item_of(
      R"({"index": 0, "input": "Answer the question based on the given documents. Only the answer.\n\nDocument 1:\n)" +
      std::string(300, 'x') +
      R"(\n\nAnswer the question based on the given documents. Only the answer.\n\nQuestion: who?", "outputs": ["A", "B"]})");
  CHECK(part(documents, Role::question) ==
        "Answer the question based on the given documents. Only the answer.\n\nQuestion: who?");
  CHECK(documents.expect == Expect::holds_any);
  CHECK(item_of(R"({"index": 0, "input": "no form that is known", "outputs": ["b"]})").spans.empty());
}

TEST_CASE("a line of LongBench") {
  const WorkloadItem item = item_of(
      R"({"_id": "ab12", "context": "Long text.", "input": "Who?", "answers": ["X", "Y Z"], "length": 2,)"
      R"( "dataset": "hotpotqa_e", "language": "en", "all_classes": null})");
  CHECK(item.id == "ab12");
  CHECK(item.kind == "hotpotqa_e");
  CHECK(item.prompt == "Long text.\n\nWho?");
  CHECK(part(item, Role::context) == "Long text.\n\n");
  CHECK(part(item, Role::question) == "Who?");
  CHECK(item.answers == std::vector<std::string>{" X", " Y Z"});
  CHECK(item.expect == Expect::holds_any);
}

TEST_CASE("summaries of LongBench have no question and no right answer") {
  const WorkloadItem item = item_of(
      R"({"_id": "1", "context": "Report.", "input": "", "answers": ["Summary"], "dataset": "gov_report_e"})");
  CHECK(item.prompt == "Report.");
  CHECK(item.spans.empty());
  CHECK(item.expect == Expect::nothing);
}

TEST_CASE("benchmarks look for their answers anywhere") {
  CHECK(is_right("It is PARIS, of course", Expect::holds_any, {" Rome", " paris"}));
  CHECK_FALSE(is_right("It is Paris", Expect::holds_all, {" Rome", " Paris"}));
  CHECK(is_right("12, and 7.", Expect::holds_all, {" 7", " 12"}));
  CHECK_FALSE(is_right("anything", Expect::holds_any, {" "}));
  CHECK_FALSE(is_right("anything", Expect::holds_all, {}));
}

TEST_CASE("lines of no known format are refused with their fields") {
  const std::string message = failure(R"({"question": "Who?", "answer": "X"})");
  CHECK_THAT(message,
             Catch::Contains("file.jsonl line 1") && Catch::Contains("its fields are question, answer"));
  CHECK_THAT(message, Catch::Contains("kvsim workload (") && Catch::Contains("RULER (") &&
                          Catch::Contains("LongBench ("));
  CHECK_THAT(failure(R"({"input": "x", "outputs": ["a"]})"), Catch::Contains("index"));
  CHECK_THAT(failure(R"({"_id": "a b", "context": "x", "input": "", "answers": [], "dataset": "d"})"),
             Catch::Contains("_id") && Catch::Contains("printable"));
  CHECK_THAT(failure(R"({"index": 1, "input": "x", "outputs": [1]})"), Catch::Contains("outputs"));
  CHECK_THAT(failure("{\"index\": 1, \"input\": \"x\", \"outputs\": []}\n{\"index\": 1, \"input\": \"y\", "
                     "\"outputs\": []}"),
             Catch::Contains("line 2") && Catch::Contains("a second prompt is called 1"));
}

TEST_CASE("what is a workload and what is a text") {
  CHECK(capture::is_workload("{\"a\": 1}", "x.jsonl"));
  CHECK(capture::is_workload(R"({"index": 1, "input": "x", "outputs": []})", "-"));
  CHECK_FALSE(capture::is_workload(R"({"question": "Who?"})", "prompt.txt"));
  CHECK_FALSE(capture::is_workload("{ x }", "prompt.txt"));
  CHECK_FALSE(capture::is_workload("Who?", "prompt.txt"));
  CHECK_FALSE(capture::is_workload("", "prompt.txt"));
}

}  // namespace kvsim::test_benchmark_line
