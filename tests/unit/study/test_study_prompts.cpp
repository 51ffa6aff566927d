// The prompt that a dry run tries in the place of a long one.
#include <catch2/catch.hpp>
#include <fstream>

#include "analysis/study/study_prompts.hpp"
#include "tests/support/source_folder.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/capture/workload_item.hpp"

namespace kvsim::analysis::test_study_prompts {

using workload::Role;

namespace {

struct Shortened {
  test::Scratch scratch;
  StudyCapture capture;

  capture::WorkloadItem of(const workload::PromptItem& item, std::uint64_t side) {
    const std::string file = scratch.file("prompts.jsonl");
    std::ofstream(file) << json_line(item) << '\n';
    capture.model = test::source_folder() + "/traces/sample/model";
    const StudyPrompts made = shortened(capture, {item.id, item.id, {}, {}}, file, side);
    REQUIRE(made.prompts.size() == 1);
    CHECK((made.prompts[0].item == item.id && made.prompts[0].tokens > 0));
    const std::string again = scratch.file("shortened.jsonl");
    std::ofstream(again) << made.lines;
    return capture::read_workload_item(again, item.id);
  }
};

workload::PromptItem item(const std::string& prompt, std::vector<workload::RoleSpan> spans) {
  workload::PromptItem out;
  out.id = "a";
  out.kind = "text";
  out.context_id = "a";
  out.prompt = prompt;
  out.spans = std::move(spans);
  return out;
}

}  // namespace

TEST_CASE("study prompts: a shortened one keeps both ends and the whole question") {
  Shortened shortened;
  //                                0         1         2         3
  //                                0123456789012345678901234567890123456789
  const workload::PromptItem long_one =
      item("The key is red. It rains. Which one is it?",
           {{0, 25, Role::context}, {4, 14, Role::evidence}, {26, 42, Role::question}});
  const capture::WorkloadItem short_one = shortened.of(long_one, 8);
  CHECK(short_one.prompt == "The key Which one is it?");
  CHECK(short_one.spans == std::vector<workload::RoleSpan>{
                               {0, 8, Role::context}, {4, 8, Role::evidence}, {8, 24, Role::question}});
  CHECK(shortened.of(long_one, 20).prompt == "The key is red. It rns. Which one is it?");
}

TEST_CASE("study prompts: what is cut out takes its parts along, and no character is halved") {
  Shortened shortened;
  const capture::WorkloadItem short_one =
      shortened.of(item("abc\u00e9 marked \u00e9xyz", {{6, 12, Role::evidence}}), 4);
  CHECK(short_one.prompt == "abcxyz");
  CHECK(short_one.spans.empty());
  CHECK(shortened.of(item("short", {}), 4).prompt == "short");
  CHECK(shortened.of(item("short", {}), 400).prompt == "short");
}

TEST_CASE("study prompts: a text of the user's is shortened to a line of its own") {
  Shortened shortened;
  shortened.of(item("only to set the model", {}), 4);
  const std::string text = shortened.scratch.file("mine.txt");
  std::ofstream(text) << "first and last";
  const StudyPrompts made =
      analysis::shortened(shortened.capture, {"mine", {}, text, {}}, shortened.scratch.file("none.jsonl"), 5);
  const std::string lines = shortened.scratch.file("lines.jsonl");
  std::ofstream(lines) << made.lines;
  CHECK(capture::read_workload_item(lines, "mine").prompt == "first last");
}

}  // namespace kvsim::analysis::test_study_prompts
