// A rank that is not the first, with the first one's messages written down beforehand; and messages as texts.
#include <catch2/catch.hpp>
#include <deque>
#include <fstream>

#include "analysis/study/rank_messages.hpp"
#include "analysis/study/rank_worker.hpp"
#include "analysis/study/study_folder.hpp"
#include "policies/builtin.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/format/writer.hpp"

namespace kvsim::analysis::test_rank_helper {

using Catch::Contains;
using kvsim::test::Scratch;

namespace {

/// Rank 1 of 2. After each report of the kind that it waits for, the next order of the script arrives.
class Scripted final : public Ranks {
 public:
  struct Line {
    RankReport::Kind after;
    RankOrder order;
  };
  explicit Scripted(std::vector<Line> lines) : lines_(lines.begin(), lines.end()) {}

  std::size_t rank() const override { return 1; }
  std::size_t size() const override { return 2; }
  std::string host() const override { return "here"; }
  unsigned threads() const override { return 1; }
  void send(std::size_t to, const std::string& text) override {
    CHECK(to == 0);
    reports.push_back(parse_report(text));
    if (lines_.empty() || reports.back().kind != lines_.front().after) return;
    arrived_.push_back(lines_.front().order);
    lines_.pop_front();
  }
  std::optional<Message> receive() override {
    if (arrived_.empty()) return std::nullopt;
    const RankOrder order = arrived_.front();
    arrived_.pop_front();
    return Message{0, message_text(order)};
  }

  std::vector<RankReport> reports;

 private:
  std::deque<Line> lines_;
  std::deque<RankOrder> arrived_;
};

RankOrder order(RankOrder::Kind kind, int code = 0) {
  RankOrder out;
  out.kind = kind;
  out.code = code;
  return out;
}

/// A study that rank 0 has begun.
struct Begun {
  Scratch scratch;
  std::string file = scratch.file("s.json"), folder = scratch.file("d");
  Progress progress;

  Begun() {
    trace::write_trace(scratch.file("a.h5"), test::random_trace({.seed = 1}));
    std::ofstream(file)
        << R"({"traces": "a.h5", "policies": ["h2o"], "budgets": ["50%"], "cuts": ["prompt"]})";
    StudyFolder(folder).write(kStudyFile, "begun");
  }
  StudyPlan plan() const {
    return plan_study(file, folder, policy::builtin(), [](const std::string&) {});
  }
  RankOrder begin() const {
    RankOrder out = order(RankOrder::Kind::begin);
    out.text = study_digest(folder);
    return out;
  }
  int help(Scripted& ranks) {
    return help_with_study(
        ranks, [&] { return plan(); }, {.threads = 1}, progress, std::chrono::milliseconds(20));
  }
};

using Report = RankReport::Kind;
using Order = RankOrder::Kind;

}  // namespace

TEST_CASE("rank helper: does the jobs that it is given, and ends with the code that it is given") {
  Begun study;
  Scripted ranks({{Report::planned, study.begin()},
                  {Report::done, order(Order::open)},
                  {Report::done, order(Order::task)},
                  {Report::done, order(Order::end, 3)}});
  CHECK(study.help(ranks) == 3);
  REQUIRE(ranks.reports.size() == 4);
  CHECK((ranks.reports[0].text == plan_digest(study.plan()) && ranks.reports[0].host == "here"));
  REQUIRE(ranks.reports[2].studied);
  CHECK((ranks.reports[2].studied->name == "a" && ranks.reports[2].studied->cuts.size() == 1));
  CHECK(ranks.reports[3].text.empty());
  CHECK(study.scratch.has("d/tasks/a.cut-prompt.seed-0/rows.csv.gz"));
}

TEST_CASE("rank helper: a folder that is not rank 0's is refused") {
  Begun study;
  RankOrder begin = study.begin();
  begin.text = std::string(64, '0');
  Scripted ranks({{Report::planned, begin}, {Report::failed, order(Order::end, 3)}});
  CHECK(study.help(ranks) == 3);
  const RankFailure error = ranks.reports.back().error.value();
  CHECK(error.kind == 3);
  CHECK_THAT(error.problem, Contains("not as rank 0 has written it"));
  CHECK_THAT(error.hint, Contains("share the folder"));
}

TEST_CASE("rank helper: what fails is told to rank 0, an interruption once") {
  Begun study;
  std::ofstream(study.file) << R"({"traces": "a.h5", "policies": ["h3o"], "budgets": ["50%"]})";
  Scripted wrong({{Report::failed, order(Order::end, 2)}});
  CHECK(study.help(wrong) == 2);
  CHECK(wrong.reports.size() == 1);
  CHECK_THAT(wrong.reports[0].error.value().problem, Contains("h3o"));

  Begun other;
  Scripted stopped({{Report::planned, other.begin()},
                    {Report::done, order(Order::stop)},
                    {Report::failed, order(Order::end, 4)}});
  CHECK(other.help(stopped) == 4);
  CHECK(stopped.reports.size() == 3);
  CHECK(stopped.reports[2].error.value().kind == 4);
}

TEST_CASE("rank messages: come back as they were, whatever names of files are made of") {
  RankOrder go;
  go.kind = Order::task;
  go.trace = 1'000'000'007;
  go.task = 5;
  go.text = "\"\n\xff";
  const RankOrder back = parse_order(message_text(go));
  CHECK((back.kind == go.kind && back.trace == go.trace && back.task == go.task && back.text == go.text));

  RankReport report;
  report.kind = Report::done;
  report.share = 1.0 / 3;
  report.notes = {"one", "two"};
  StudiedTrace studied;
  studied.name = "a";
  studied.cuts = {{"prompt", 3, 4}};
  studied.captured = true;
  studied.problem = "why";
  report.studied = studied;
  report.error = RankFailure{2, "what", "where", "hint"};
  const RankReport same = parse_report(message_text(report));
  CHECK((same.kind == report.kind && same.share == report.share && same.notes == report.notes));
  REQUIRE(same.studied);
  CHECK((same.studied->name == "a" && same.studied->captured && same.studied->problem == "why"));
  CHECK((same.studied->cuts.at(0).cut == "prompt" && same.studied->cuts[0].prompt == 3 &&
         same.studied->cuts[0].decode == 4));
  CHECK((same.error.value().kind == 2 && same.error->hint == "hint"));
  const RankReport empty = parse_report(message_text(RankReport{}));
  CHECK((!empty.studied && !empty.error));
  CHECK_THROWS_AS(parse_order("{}"), Error);
}

}  // namespace kvsim::analysis::test_rank_helper
