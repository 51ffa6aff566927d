// The folder of a study: tasks whole or not at all, tables with their bits, nothing of others removed.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "analysis/results/cell_columns.hpp"
#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_results.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/partial_file.hpp"
#include "tests/unit/traces/scratch.hpp"

namespace kvsim::analysis::test_study_folder {

using Catch::Contains;
using kvsim::test::Scratch;

namespace {

const std::vector<ColumnInfo> kColumns{
    {"trace", "", ""}, {"budget", "", ""}, {"loss", "share", ""}, {"n", "", ""}};

Records sample() {
  return {kColumns,
          {{std::string("a,\"b\"\nc"), std::string("128"), 1.0 / 3.0, std::uint64_t{18446744073709551615ULL}},
           {std::string("7"), std::string("5%"), -0.0, std::monostate{}},
           {std::string("x"), std::string("1e5"), 1e-300, std::uint64_t{0}}}};
}

void touch(const std::string& path, const char* text = "mine") {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("study folder: a task comes back as it was saved") {
  const Scratch scratch;
  StudyFolder folder(scratch.file("d"));
  const std::vector<Skipped> skipped{{"a", "prompt", "h2o", "h2o()", "5%", {}, "too small: 3"},
                                     {"a", {}, {}, {}, {}, "hash", "why"}};
  CHECK_FALSE(task_finished(scratch.file("d"), "a.seed-0"));
  folder.save("a.seed-0", sample(), skipped);
  CHECK(task_finished(scratch.file("d"), "a.seed-0"));
  const Records back = folder.rows("a.seed-0", kColumns);
  REQUIRE(back.rows.size() == 3);
  CHECK(text(back.rows[0][0]) == "a,\"b\"\nc");
  CHECK(text(back.rows[0][1]) == "128");
  CHECK(number(back.rows[0][2]) == 1.0 / 3.0);
  CHECK(back.rows[0][3] == Value(std::uint64_t{18446744073709551615ULL}));
  CHECK(std::signbit(*number(back.rows[1][2])));
  CHECK(back.rows[1][3] == Value());
  const std::vector<Skipped> reasons = folder.skipped("a.seed-0");
  REQUIRE(reasons.size() == 2);
  CHECK((reasons[0].cut == "prompt" && reasons[0].params == "h2o()" && reasons[0].reason == "too small: 3" &&
         reasons[0].analysis.empty()));
  CHECK((reasons[1].analysis == "hash" && reasons[1].policy.empty()));
}

TEST_CASE("study folder: what a killed run left is no task, and goes") {
  const Scratch scratch;
  touch(scratch.file("d/tasks/a.seed-0.partial/rows.csv"), "half");
  touch(scratch.file("d/tables/means.csv.0123abcd.partial"), "half");
  touch(scratch.file("d/report.html.0123abcd.partial"), "half");
  touch(scratch.file("d/notes.csv.0123abcd.partial"));
  StudyFolder folder(scratch.file("d"));
  CHECK_FALSE(task_finished(scratch.file("d"), "a.seed-0"));
  CHECK_FALSE(scratch.has("d/tasks/a.seed-0.partial"));
  CHECK_FALSE(scratch.has("d/tables/means.csv.0123abcd.partial"));
  CHECK_FALSE(scratch.has("d/report.html.0123abcd.partial"));
  CHECK(scratch.has("d/notes.csv.0123abcd.partial"));  // not a study's
}

TEST_CASE("study folder: what a study leaves that was killed at once is nothing") {
  const Scratch scratch;
  const std::string folder = scratch.file("d");
  CHECK(nothing_there(folder));
  { const StudyFolder begun(folder); }
  touch(folder + "/study.json.0123abcd.partial");
  CHECK(nothing_there(folder));
  touch(folder + "/tasks/a.seed-0.partial/rows.csv", "half");
  CHECK_FALSE(nothing_there(folder));
  touch(scratch.file("e/mine.txt"));
  CHECK_FALSE(nothing_there(scratch.file("e")));
  CHECK_FALSE(nothing_there(scratch.file("e/mine.txt")));
}

TEST_CASE("study folder: a damaged task says how to be rid of it") {
  const Scratch scratch;
  StudyFolder folder(scratch.file("d"));
  folder.save("a", sample(), {});
  CHECK_THROWS_WITH(folder.rows("a", {{"other", "", ""}}),
                    Contains("d/tasks/a/rows.csv.gz") && Contains("Remove"));
}

TEST_CASE("study folder: one study at a time") {
  const Scratch scratch;
  {
    const StudyFolder first(scratch.file("d"));
    CHECK_THROWS_WITH(StudyFolder(scratch.file("d")), Contains("another study is at work"));
  }
  CHECK_NOTHROW(StudyFolder(scratch.file("d")));
}

TEST_CASE("study folder: processes that have joined a study keep others out when its first has ended") {
  const Scratch scratch;
  auto first = std::make_unique<StudyFolder>(scratch.file("d"));
  touch(scratch.file("d/tasks/a.partial/rows.csv.gz"));
  {
    StudyFolder joined = StudyFolder::join(scratch.file("d"));
    const StudyFolder another = StudyFolder::join(scratch.file("d"));
    CHECK(scratch.has("d/tasks/a.partial/rows.csv.gz"));  // another process may be writing it
    joined.save("b", sample(), {});
    CHECK(first->rows("b", kColumns).rows.size() == 3);
    first.reset();
    CHECK_THROWS_WITH(StudyFolder(scratch.file("d")), Contains("another study is at work"));
  }
  CHECK_NOTHROW(StudyFolder(scratch.file("d")));
  CHECK_FALSE(scratch.has("d/tasks/a.partial"));
  CHECK_THROWS_WITH(StudyFolder::join(scratch.file("nowhere")), Contains("nowhere/tasks"));
}

TEST_CASE("study folder: starting anew removes what a study wrote and nothing else") {
  const Scratch scratch;
  for (const char* name :
       {"study.json", "results.csv", "results-step.csv.gz", "tasks/a/rows.csv.gz", "columns.csv",
        "prompts.jsonl", "report.html", "tasks/a/rows.csv", "tasks/a/skipped.csv", "tables/means.csv",
        "figures/f.svg", "traces/a.h5", "figures/g.svg.0123abcd.partial", "traces/a.h5.0123abcd.partial"})
    touch(scratch.file("d/") + name);
  for (const char* name : {"mine.txt", "tasks/b/mine.txt", "tables/mine.txt", "traces/mine.h5"})
    touch(scratch.file("d/") + name);
  remove_study(scratch.file("d"), {"a"});
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.file("d")))
    if (entry.is_regular_file())
      left.push_back(std::filesystem::relative(entry.path(), scratch.file("d")).string());
  std::sort(left.begin(), left.end());
  CHECK(left ==
        std::vector<std::string>{"mine.txt", "tables/mine.txt", "tasks/b/mine.txt", "traces/mine.h5"});
}

TEST_CASE("study folder: one that was killed while it started anew is still a study's") {
  const Scratch scratch;
  touch(scratch.file("d/mine.txt"));
  CHECK_FALSE(nothing_left(scratch.file("d")));
  touch(scratch.file("d/study.json"));
  touch(scratch.file("d/tasks/a/rows.csv"));
  CHECK_FALSE(nothing_left(scratch.file("d")));
  remove_study(scratch.file("d"), {});
  CHECK(nothing_left(scratch.file("d")));
  CHECK_FALSE(nothing_there(scratch.file("d")));
  touch(scratch.file("d/results.csv"));
  CHECK_FALSE(nothing_left(scratch.file("d")));
}

TEST_CASE("study folder: tables that are no longer made go") {
  const Scratch scratch;
  StudyFolder folder(scratch.file("d"));
  folder.write("tables/means.csv", "a\n");
  folder.write("tables/old.csv", "a\n");
  folder.keep_tables({"means"});
  CHECK(scratch.has("d/tables/means.csv"));
  CHECK_FALSE(scratch.has("d/tables/old.csv"));
}

TEST_CASE("study results: traces that an analysis cannot compare leave its table empty, and say why") {
  const Scratch scratch;
  StudyFolder folder(scratch.file("d"));
  const Kind& kind = kind_named("allocation-consistency");
  const Settings settings(kind.settings);
  const auto layer = [](const char* trace, std::uint64_t index) -> std::vector<Value> {
    return {
        std::string(trace), std::string("h2o"), std::string("h2o()"), std::string("10%"), index, 5.0, 0.5};
  };
  folder.save("a", {kind.columns, {layer("a", 0), layer("a", 1)}}, {});
  folder.save("b", {kind.columns, {layer("b", 0), layer("b", 1), layer("b", 2)}}, {});
  const StudyResults found =
      write_results(folder, {}, {}, {}, {}, {{&kind, "splits", &settings, {"a", "b"}}});
  REQUIRE(found.skipped.size() == 1);
  CHECK(found.skipped[0].analysis == "splits");
  CHECK_THAT(found.skipped[0].reason, Contains("has 3 layers, 'a' 2"));
  REQUIRE(found.notes.size() == 1);
  CHECK_THAT(found.notes[0], Contains("splits is empty"));
  CHECK(read_file(scratch.file("d/tables/splits.csv"), 1000) ==
        csv_text(with_budget_numbers({kind.summary_columns, {}})));
  CHECK_THAT(read_file(scratch.file("d/tables/skipped.csv"), 1000), Contains("splits"));
}

TEST_CASE("atomic files replace, and leave nothing when they are given up") {
  const Scratch scratch;
  write_atomic(scratch.file("a"), "first");
  {
    AtomicFile file(scratch.file("a"));
    file.write("second");
    CHECK(std::distance(std::filesystem::directory_iterator(scratch.file("")), {}) == 2);
  }
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.file("")), {}) == 1);
  CHECK(read_file(scratch.file("a"), 100) == "first");
  write_atomic(scratch.file("a"), std::string(3'000'000, 'x'));
  CHECK(read_file(scratch.file("a"), 3'000'000).size() == 3'000'000);
  CHECK_THROWS_AS(AtomicFile(scratch.file("no/such/a")), Error);
}

}  // namespace kvsim::analysis::test_study_folder
