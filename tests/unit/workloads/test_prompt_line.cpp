// Tests that lines as people and benchmarks write them become items, and that others are refused with their
// fields.
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "traces/capture/workload_item.hpp"

namespace kvsim::test_prompt_line {

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

TEST_CASE("a line of a prompt and its answer needs nothing else") {
  const WorkloadItem item = item_of(R"({"prompt": "The capital of France is", "answer": "Paris"})");
  CHECK(item.id == "1");
  CHECK(item.kind.empty());
  CHECK(item.prompt == "The capital of France is");
  CHECK(item.answers == std::vector<std::string>{" Paris"});
  CHECK(item.expect == Expect::holds_any);
  CHECK(item.spans.empty());

  CHECK(item_of(R"({"text": "One\n", "answers": [1, 2.5, "three"]})").answers ==
        std::vector<std::string>{"1", "2.5", "three"});
  CHECK(item_of(R"({"id": "a b", "prompt": "x"})").id == "a-b");
  CHECK(item_of(R"({"id": 7, "prompt": "x"})").expect == Expect::nothing);
  CHECK(item_of(R"({"prompt": "x", "answers": ["y"], "expect": "first"})").expect == Expect::first);
}

TEST_CASE("questions about a context, and without one") {
  const WorkloadItem squad = item_of(
      R"({"id": "5", "title": "t", "context": "Ann saw Bob.", "question": "Who?", "answers": {"text": ["Ann"], "answer_start": [0]}})");
  CHECK(squad.prompt == "Ann saw Bob.\n\nWho?");
  CHECK(part(squad, Role::context) == "Ann saw Bob.\n\n");
  CHECK(part(squad, Role::question) == "Who?");
  CHECK(squad.answers == std::vector<std::string>{" Ann"});
  const WorkloadItem alone = item_of(R"({"question": "Who?", "answer": "X"})");
  CHECK(alone.prompt == "Who?");
  CHECK(alone.spans.empty());
}

TEST_CASE("the parts of a prompt are found by their text, and never guessed") {
  const WorkloadItem item = item_of(
      R"({"prompt": "Read. Ann saw Bob. Who? Say.", "context": "Ann saw Bob.", "question": "Who?", "answer": "Ann"})");
  CHECK(item.prompt == "Read. Ann saw Bob. Who? Say.");
  CHECK(part(item, Role::context) == "Ann saw Bob.");
  CHECK(part(item, Role::question) == "Who?");
  CHECK(item_of(R"({"prompt": "Ann.", "question": "Who?"})").spans.empty());
  CHECK_THAT(failure(R"({"prompt": "Who? Ann. Who?", "question": "Who?"})"),
             Catch::Contains("question") && Catch::Contains("more than once"));
}

TEST_CASE("choices are lettered, and the answer is a letter") {
  const WorkloadItem longbench2 = item_of(
      R"({"_id": "6", "domain": "d", "question": "Which?", "choice_A": "red", "choice_B": "blue", "choice_C": "green",)"
      R"( "choice_D": "grey", "answer": "B", "context": "It is blue."})");
  CHECK(longbench2.prompt ==
        "It is blue.\n\nWhich?\n(A) red\n(B) blue\n(C) green\n(D) grey\nThe correct answer is");
  CHECK(longbench2.answers == std::vector<std::string>{" (B)"});
  CHECK(longbench2.expect == Expect::first);
  CHECK(longbench2.prompt.substr(longbench2.prompt.size() - longbench2.answer_prefix) ==
        "\nThe correct answer is");
  CHECK(part(longbench2, Role::question).starts_with("Which?"));

  const WorkloadItem infinite = item_of(
      R"({"id": 0, "context": "It is blue.", "input": "Which?", "answer": ["blue"], "options": ["red", "blue"]})");
  CHECK(infinite.answers == std::vector<std::string>{" (B)"});
  CHECK(item_of(R"({"id": 0, "context": "c", "input": "q", "answer": ["a"], "options": []})").answers ==
        std::vector<std::string>{" a"});
  CHECK_THAT(failure(R"({"context": "c", "input": "q", "answer": "x", "options": ["y", "z"]})"),
             Catch::Contains("no answer is one of its 2 choices"));
}

TEST_CASE("several questions about one context are turns") {
  const std::vector<WorkloadItem> items = capture::parse_workload(
      R"({"id": 3, "context": "Ann, Bob.", "multi_turns": [{"input": "First?", "answer": "Ann"}, {"input": "Last?", "answer": "Bob"}]})",
      "x.jsonl");
  REQUIRE(items.size() == 2);
  CHECK((items[0].id == "3-turn0" && items[1].id == "3-turn1"));
  CHECK((items[0].context_id == "3" && items[1].context_id == "3"));
  CHECK((items[0].turn == 0 && items[1].turn == 1));
  CHECK(items[1].prompt == "Ann, Bob.\n\nLast?");
  CHECK(items[1].answers == std::vector<std::string>{" Bob"});
}

TEST_CASE("messages wait for a chat template; a last one of the assistant is the answer") {
  const WorkloadItem item = item_of(
      R"({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann"}]})");
  CHECK(item.messages);
  CHECK(item.prompt == R"([{"role":"user","content":"Who?"}])");
  CHECK(item.answers == std::vector<std::string>{" Ann"});
  const WorkloadItem given =
      item_of(R"({"prompt": [{"role": "user", "content": "Who?"}], "answers": ["Bob"]})");
  CHECK((given.messages && given.answers == std::vector<std::string>{" Bob"}));
  CHECK_THAT(failure(R"({"messages": []})"), Catch::Contains("nobody asks"));
}

TEST_CASE("samples that lm-eval logged") {
  const WorkloadItem item = item_of(
      R"({"doc_id": 4, "doc": {"q": "Who?"}, "target": "Ann", "arguments": {"gen_args_0": {"arg_0": "Q: Who? A:", "arg_1": {"until": ["\n"]}}}, "resps": [["Bob"]]})");
  CHECK((item.id == "4" && item.prompt == "Q: Who? A:"));
  CHECK(item.answers == std::vector<std::string>{" Ann"});
  CHECK(item_of(R"({"doc_id": 4, "target": 7, "arguments": [["Q: 3+4?", {"until": []}]]})").answers ==
        std::vector<std::string>{" 7"});
  CHECK_THAT(failure(R"({"doc_id": 4, "target": 0, "arguments": [["Q", " a"], ["Q", " b"]]})"),
             Catch::Contains("expected one request") && Catch::Contains("2"));
}

TEST_CASE("fields of other names are named") {
  const FieldNames fields = capture::parse_line_fields("prompt=instruction, answers=gold");
  const WorkloadItem item = capture::parse_workload_item(
      R"({"id": "z", "instruction": "Say.", "gold": "x", "context": "not asked for"})", "f.jsonl", "",
      fields);
  CHECK((item.id == "z" && item.prompt == "Say." && item.spans.empty()));
  CHECK(item.answers == std::vector<std::string>{" x"});
  CHECK(
      capture::parse_workload(R"({"question_id": 9, "instruction": "a", "gold": "b"})", "f.jsonl", fields)[0]
          .id == "9");
  CHECK_THROWS_WITH(
      capture::parse_workload(R"({"instructions": "Say."})", "f.jsonl", fields),
      Catch::Contains("no field \"instruction\" for prompt") && Catch::Contains("instructions"));
  CHECK_THROWS_WITH(capture::parse_line_fields("promt=a"), Catch::Contains("prompt"));
  CHECK_THROWS_WITH(capture::parse_line_fields("prompt"), Catch::Contains("NAME=FIELD"));
}

TEST_CASE("lines without a prompt are refused with their fields") {
  const std::string message = failure(R"({"body": "Who?", "gold": "X"})");
  CHECK_THAT(message, Catch::Contains("file.jsonl line 1") && Catch::Contains("its fields are body, gold"));
  CHECK_THAT(message, Catch::Contains("--fields prompt=NAME"));
  CHECK_THAT(failure(R"({"index": 1, "input": "x", "outputs": [[1]]})"), Catch::Contains("outputs"));
  CHECK_THAT(failure(R"({"prompt": 1})"), Catch::Contains("prompt"));
  CHECK_THAT(failure("{\"index\": 1, \"input\": \"x\", \"outputs\": []}\n{\"index\": 1, \"input\": \"y\", "
                     "\"outputs\": []}"),
             Catch::Contains("line 2") && Catch::Contains("a second prompt is called 1"));
}

TEST_CASE("what is a workload and what is a text") {
  CHECK(capture::is_workload("{\"a\": 1}", "x.jsonl"));
  CHECK(capture::is_workload(R"({"index": 1, "input": "x", "outputs": []})", "-"));
  CHECK(capture::is_workload(R"({"prompt": "Who?", "answer": "Ann"})", "-"));
  CHECK_FALSE(capture::is_workload(R"({"question": "Who?"})", "prompt.txt"));
  CHECK_FALSE(capture::is_workload("{ x }", "prompt.txt"));
  CHECK_FALSE(capture::is_workload("Who?", "prompt.txt"));
  CHECK_FALSE(capture::is_workload("", "prompt.txt"));
}

}  // namespace kvsim::test_prompt_line
