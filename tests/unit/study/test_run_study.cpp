// A study run from the library: what it leaves in its folder, what it returns, and that it prints nothing.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "analysis/results/reading/read_tables.hpp"
#include "analysis/study/run_study.hpp"
#include "analysis/study/study_estimate.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/format/writer.hpp"

namespace kvsim::analysis::test_run_study {

using Catch::Contains;
using kvsim::test::Scratch;

namespace {

/// Sends standard output and standard error into a file while it lives.
class Printed {
 public:
  explicit Printed(const std::string& path) : path_(path) {
    flush();
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::close(file);
  }
  ~Printed() { restore(); }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;

  /// All that was printed; from then on streams are as before.
  std::string text() {
    restore();
    return read_file(path_, 1 << 20);
  }

 private:
  static void flush() {
    std::cout.flush();
    std::cerr.flush();
    std::fflush(nullptr);
  }
  void restore() {
    flush();
    ::dup2(out_, STDOUT_FILENO);
    ::dup2(err_, STDERR_FILENO);
  }

  std::string path_;
  int out_ = ::dup(STDOUT_FILENO), err_ = ::dup(STDERR_FILENO);
};

/// Two traces, and a study of both with a note to give: one policy is named twice.
struct SmallStudy {
  Scratch scratch;
  std::string file = scratch.file("s.json"), folder = scratch.file("d");
  std::vector<std::string> notes;
  Progress progress;
  NoteListener note = [this](const std::string& text) { notes.push_back(text); };

  explicit SmallStudy(const std::string& fields = "") {
    trace::write_trace(scratch.file("a.h5"), test::random_trace({.seed = 1}));
    trace::write_trace(scratch.file("b.h5"), test::random_trace({.seed = 2}));
    say(fields);
  }
  void say(const std::string& fields) {
    std::ofstream(file) << R"({"traces": ["a.h5", "b.h5"], "policies": ["h2o", "h2o", "streaming_llm"],
      "budgets": ["50%"], "scopes": ["all"], "cuts": ["prompt"], "statistics": {"resamples": 100},
      "report": false)" << fields
                        << '}';
  }
  StudyPlan plan() { return plan_study(file, folder, policy::builtin(), note); }
  StudyOutcome run(Existing existing = Existing::refuse) {
    return run_study(plan(), {.existing = existing, .threads = 1}, progress, note);
  }
  std::string text(const char* name) { return read_file(folder + '/' + name, 1 << 24); }
};

}  // namespace

TEST_CASE("run study: a study is run from the library, which prints nothing") {
  SmallStudy study(R"(, "analyses": [{"kind": "heads", "rows": 4}])");
  Printed printed(study.scratch.file("printed"));
  const StudyOutcome outcome = study.run();
  const StudyEstimate tried =
      estimate_study(study.plan(), study.plan().traces[0], 1, study.progress, study.note);
  CHECK(printed.text().empty());

  REQUIRE(study.notes.size() >= 1);
  CHECK_THAT(study.notes[0], Contains("asked for more than once"));
  CHECK(outcome.results.rows == 4);
  CHECK(parse_csv(study.text("results.csv"), "results.csv").rows.size() == 4);
  CHECK(outcome.results.skipped.empty());
  CHECK(outcome.problems().empty());
  REQUIRE(outcome.traces.size() == 2);
  CHECK((outcome.traces[1].name == "b" && outcome.traces[1].prompt == 24 && outcome.traces[1].decode == 9));
  CHECK(study.scratch.has("d/tables/heads.csv"));
  CHECK_THAT(study.text("study.json"), Contains("\"complete\": true"));
  CHECK((tried.memory > 0 && tried.tried_seconds > 0 && tried.tried_tokens == 33));
  CHECK(tried.seconds == 0);  // everything has run
}

TEST_CASE("run study: progress counts tasks, tables and report") {
  SmallStudy study;
  study.run();
  CHECK(study.progress.share() == Approx(1));
  // Tasks and tables are done, and the report cannot be drawn.
  std::string text = read_file(study.file, 1 << 20);
  text.replace(text.find("false"), 5, "true");
  std::ofstream(study.file) << text;
  std::ofstream(study.scratch.file("d/figures")) << "no folder";
  CHECK_THROWS_AS(study.run(Existing::go_on), Error);
  CHECK(study.progress.share() == Approx(kTaskShare + (1 - kTaskShare) / 2));
}

TEST_CASE("run study: a study that stands in the folder is neither mixed nor replaced unasked") {
  SmallStudy study;
  study.run();
  const std::string results = study.text("results.csv");
  CHECK_THROWS_WITH(study.run(), Contains("is not empty"));
  study.notes.clear();
  study.say(R"(, "title": "T")");
  study.run(Existing::go_on);
  REQUIRE_FALSE(study.notes.empty());
  CHECK(study.notes.back() == "the study was edited; changed: title");
  CHECK(study.text("results.csv") == results);
  study.say(R"(, "bounds": false)");
  CHECK_THROWS_WITH(study.run(Existing::go_on), Contains("bounds was true and is now false"));
  study.run(Existing::start_anew);
  CHECK(study.text("results.csv") != results);
}

TEST_CASE("run study: a trace that cannot be read costs only itself, and is a problem of the outcome") {
  SmallStudy study;
  std::ofstream(study.scratch.file("b.h5")) << "no trace";
  const StudyOutcome outcome = study.run();
  REQUIRE(outcome.problems().size() == 1);
  CHECK_THAT(outcome.problems()[0], Contains("b.h5"));
  CHECK(outcome.results.rows == 2);
  CHECK_THAT(study.text("study.json"), Contains("\"complete\": false"));
}

TEST_CASE("run study: stopped, it says how much is kept and how to go on") {
  SmallStudy study;
  study.progress.stop = true;
  try {
    study.run();
    FAIL("it was not stopped");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::interrupted);
    CHECK_THAT(error.what(), Contains("0 of 2 tasks are finished and kept") && Contains("--resume"));
  }
}

}  // namespace kvsim::analysis::test_run_study
