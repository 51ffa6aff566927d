// Tests that a prompt is read back and its parts become flags of tokens.
#include <catch2/catch.hpp>
#include <fstream>

#include "sim/base/error.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "tests/unit/workloads/sample_tokenizer.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/workloads/workload.hpp"

namespace kvsim::test_workload_item {

using capture::WorkloadItem;
using workload::Role;

namespace {

/// A temporary file with some text.
class TextFile {
 public:
  explicit TextFile(const std::string& text) { std::ofstream(path()) << text; }
  std::string path() const { return scratch_.file("prompts.jsonl"); }

 private:
  test::Scratch scratch_;
};

constexpr const char* kLine =
    R"({"id": "a-1", "tokens": 3, "prompt": "one two", "spans": [{"begin": 0, "end": 3, "role": "context"}], "answers": [" x"]})";

std::string failure(const std::string& text, const std::string& id = "") {
  const TextFile file(text);
  try {
    capture::read_workload_item(file.path(), id);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string with(const std::string& from, const std::string& to) {
  std::string line = kLine;
  line.replace(line.find(from), from.size(), to);
  return line;
}

}  // namespace

TEST_CASE("items written are read back") {
  workload::WorkloadOptions options;
  options.context_tokens = 200;
  options.count = 3;
  options.task.passages = &workload::builtin_passages();
  std::string lines;
  std::vector<workload::PromptItem> items;
  make_workload(
      workload::kind_named("passkey"), options,
      [](const workload::SpannedText& text) { return sample_tokenizer().encode(text.text()).size(); },
      [&](const workload::PromptItem& item) {
        items.push_back(item);
        lines += json_line(item) + "\n";
      });
  const TextFile file(lines);
  for (const workload::PromptItem& item : items) {
    const WorkloadItem read = capture::read_workload_item(file.path(), item.id);
    CHECK(read.id == item.id);
    CHECK(read.tokens == item.tokens);
    CHECK(read.prompt == item.prompt);
    CHECK(read.spans == item.spans);
    CHECK(read.answers == item.answers);
  }
}

TEST_CASE("the only item needs no name, one of several does") {
  const TextFile file(std::string(kLine) + "\n\n");
  CHECK(capture::read_workload_item(file.path(), "").id == "a-1");
  const std::string two = std::string(kLine) + "\n" + with("a-1", "a-2") + "\n";
  CHECK_THAT(failure(two), Catch::Contains("holds 2 prompts") && Catch::Contains("a-1"));
  CHECK_THAT(failure(two, "a-3"), Catch::Contains("Did you mean a-1"));
  CHECK_THAT(failure("\n", ""), Catch::Contains("holds 0 prompts"));
}

TEST_CASE("damaged files are refused with their line") {
  const std::string first = std::string(kLine) + "\n";
  CHECK_THAT(failure(first + "{", "a-1"), Catch::Contains("line 2"));
  CHECK_THAT(failure(first + kLine, "a-1"), Catch::Contains("line 2") && Catch::Contains("a second prompt"));
  CHECK_THAT(failure(with("\"end\": 3", "\"end\": 8")), Catch::Contains("end") && Catch::Contains("0..7"));
  CHECK_THAT(failure(with("\"begin\": 0", "\"begin\": 4")),
             Catch::Contains("end") && Catch::Contains("4..7"));
  CHECK_THAT(failure(with("\"context\"", "\"contxt\"")), Catch::Contains("role"));
  for (const char* id : {R"("\u001b[2J")", R"("a b")", R"("")"})
    CHECK_THAT(failure(with("\"a-1\"", id)), Catch::Contains("line 1 id") && Catch::Contains("printable"));
  CHECK_THAT(failure(with("\"prompt\"", "\"promt\"")), Catch::Contains("missing \"prompt\""));
  CHECK_THAT(failure(with("[\" x\"]", "[1]")), Catch::Contains("answers"));
}

TEST_CASE("a token has the flags of every part it shares a byte with") {
  // <s>, " <<" is one token, then " apple", " river", " >>": 1 + 4 tokens.
  WorkloadItem item{"x", "needle", 0, " << apple river >>", {}};
  const std::vector<std::int32_t> ids = sample_tokenizer().encode(item.prompt);
  REQUIRE(ids.size() == 5);
  item.spans = {{0, 5, Role::question}, {5, 18, Role::context}, {10, 11, Role::evidence}};
  // " apple" is bytes 3 to 8: its first two are question, the others context. " river" begins at 9.
  const std::uint32_t question = 8, context = 16, evidence = 32;
  CHECK(part_flags(item, ids, sample_tokenizer()) ==
        std::vector<std::uint32_t>{0, question, question | context, context | evidence, context});
}

TEST_CASE("special tokens around the text are not part of it, those inside are") {
  WorkloadItem item{.id = "x", .kind = "text", .prompt = "<s> apple", .spans = {{0, 9, Role::context}}};
  const std::vector<std::int32_t> ids = sample_tokenizer().encode(item.prompt);
  REQUIRE(ids.size() == 3);
  CHECK(part_flags(item, ids, sample_tokenizer()) == std::vector<std::uint32_t>{16, 0, 16});
  CHECK_THROWS_AS(part_flags(item, {ids[0]}, sample_tokenizer()), Error);
}

}  // namespace kvsim::test_workload_item
