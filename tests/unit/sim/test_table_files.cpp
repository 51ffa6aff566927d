// Tests datasets that other programs write: they are read if they fit the run, and refused by name if not.
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"
#include "sim/replay/decisions.hpp"
#include "sim/replay/table_files.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/study.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/format/hdf5_output.hpp"

namespace kvsim::test_table_files {

using Catch::Contains;

namespace {

constexpr std::uint64_t kLayers = 2, kHeads = 3, kTokens = 30;

trace::MemoryTrace small_run() {
  return test::random_trace({.layers = kLayers, .kv_heads = kHeads, .prompt = 24, .decode = 6});
}

template <class Value>
void write(const std::string& path, const std::vector<Value>& values, const std::vector<std::uint64_t>& dims,
           const std::string& group = "") {
  hdf5::OutputFile file(path, false);
  if (group.empty()) {
    hdf5::put_array(file.id(), "scores", hdf5::type_of<Value>(), values.data(), dims, path);
  } else {
    const hdf5::Object inner = hdf5::create_group(file.id(), group, path);
    hdf5::put_array(inner.id(), "scores", hdf5::type_of<Value>(), values.data(), dims, path);
  }
  file.commit();
}

template <class Value>
std::vector<Value> counting(std::size_t n) {
  std::vector<Value> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<Value>(i % 200);
  return out;
}

std::vector<float> read(const std::string& file, const std::string& dataset = "scores") {
  const trace::MemoryTrace run = small_run();
  return sim::TableFiles(trace::Sequence(run)).row(file, dataset, 1, 2);
}

}  // namespace

TEST_CASE("a table is read in each of its types, by lane, from any group") {
  const test::Scratch scratch;
  const std::size_t n = kLayers * kHeads * 5;
  write(scratch.file("f32.h5"), counting<float>(n), {kLayers, kHeads, 5});
  write(scratch.file("f64.h5"), counting<double>(n), {kLayers, kHeads, 5});
  write(scratch.file("u8.h5"), counting<std::uint8_t>(n), {kLayers, kHeads, 5});
  for (const char* name : {"f32.h5", "f64.h5", "u8.h5"})
    CHECK(read(scratch.file(name)) == std::vector<float>{25, 26, 27, 28, 29});
  write(scratch.file("inside.h5"), counting<float>(n), {kLayers, kHeads, 5}, "study");
  CHECK(read(scratch.file("inside.h5"), "study/scores") == std::vector<float>{25, 26, 27, 28, 29});
  CHECK(read(scratch.file("inside.h5"), "/study/scores").front() == 25);
}

TEST_CASE("matrices and rows are read by lane, and refused in other shapes") {
  const test::Scratch scratch;
  const trace::MemoryTrace run = small_run();
  const sim::TableFiles tables{trace::Sequence(run)};
  const std::string maps = scratch.file("maps.h5"), rows = scratch.file("rows.h5"),
                    long_rows = scratch.file("long.h5");
  write(maps, counting<double>(kLayers * kHeads * 6), {kLayers, kHeads, 3, 2});
  write(rows, counting<float>(kLayers * kHeads * 25 * 2), {kLayers, kHeads, 25, 2});
  write(long_rows, counting<float>(kLayers * kHeads * 31), {kLayers, kHeads, 31, 1});
  const auto read_as = [&](const std::string& file, std::vector<std::size_t> dims) {
    return tables.of_head(file, "scores", 1, 0, dims);
  };
  CHECK(read_as(maps, {3, 2}) == std::vector<float>{18, 19, 20, 21, 22, 23});
  CHECK(read_as(rows, {sim::TableFiles::kPositions, 2}).size() == 50);
  CHECK(read_as(rows, {25, 2})[1] == 151);
  // A dataset that has been read in its shape is none of another.
  CHECK_THROWS_WITH(read_as(maps, {2, 3}), Contains(maps) && Contains("scores"));
  CHECK_THROWS_WITH(read_as(maps, {6}), Contains(maps));
  CHECK_THROWS_WITH(read_as(rows, {sim::TableFiles::kPositions, 3}), Contains(rows));
  CHECK_THROWS_WITH(read_as(long_rows, {sim::TableFiles::kPositions, 1}),
                    Contains("31 positions, the run has 30"));
  std::vector<float> bad = counting<float>(kLayers * kHeads * 6);
  bad[20] = std::numeric_limits<float>::infinity();
  write(scratch.file("bad.h5"), bad, {kLayers, kHeads, 3, 2});
  CHECK_THROWS_WITH(read_as(scratch.file("bad.h5"), {3, 2}),
                    Contains("layer 1, KV head 0, number 2 is not a finite f32"));
}

TEST_CASE("a table is read once, even if its file is removed later, and from any thread") {
  const test::Scratch scratch;
  const std::string path = scratch.file("t.h5");
  write(path, counting<float>(kLayers * kHeads * kTokens), {kLayers, kHeads, kTokens});
  const trace::MemoryTrace run = small_run();
  const sim::TableFiles tables{trace::Sequence(run)};
  Workers workers(2);
  std::vector<std::vector<float>> rows(60);
  workers.run(rows.size(), [&](std::size_t i) {
    rows[i] = tables.row(path, "scores", static_cast<int>(i / 3 % 2), static_cast<int>(i % 3));
  });
  for (std::size_t i = 0; i < rows.size(); ++i)
    CHECK(rows[i].front() == static_cast<float>(i % 6 * kTokens % 200));
  std::filesystem::remove(path);
  CHECK(tables.row(path, "scores", 0, 0).size() == kTokens);
}

TEST_CASE("tables that do not fit are refused with file and dataset") {
  const test::Scratch scratch;
  int made = 0;
  const auto refusal = [&](const auto& values, const std::vector<std::uint64_t>& dims) {
    const std::string path = scratch.file(std::to_string(made++) + ".h5");
    write(path, values, dims);
    std::string message;
    try {
      read(path);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      message = error.what();
    }
    CHECK_THAT(message, Contains(path) && Contains("scores"));
    return message;
  };
  CHECK_THAT(refusal(counting<float>(6), {6}), Contains("does not have 3 dimensions"));
  CHECK_THAT(refusal(counting<float>(30), {kLayers, kHeads, 5, 1}), Contains("does not have 3 dimensions"));
  CHECK_THAT(refusal(counting<float>(30), {kHeads, kLayers, 5}), Contains("run's model"));
  CHECK_THAT(refusal(counting<float>(10), {kLayers, 1, 5}), Contains("run's model"));
  CHECK_THAT(refusal(counting<float>(0), {kLayers, kHeads, 0}), Contains("0 positions"));
  CHECK_THAT(refusal(counting<float>(186), {kLayers, kHeads, 31}), Contains("31 positions, the run has 30"));
  CHECK_THAT(refusal(counting<std::int32_t>(30), {kLayers, kHeads, 5}), Contains("element type"));
  std::vector<float> with_nan = counting<float>(30);
  with_nan[22] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(refusal(with_nan, {kLayers, kHeads, 5}), Contains("layer 1, KV head 1, position 2"));
  std::vector<double> too_large = counting<double>(30);
  too_large[0] = -1e300;
  CHECK_THAT(refusal(too_large, {kLayers, kHeads, 5}), Contains("layer 0, KV head 0, position 0"));
}

TEST_CASE("a dataset that is not a table is refused") {
  const test::Scratch scratch;
  const std::string path = scratch.file("t.h5"), text = scratch.file("text.h5");
  write(path, counting<float>(30), {kLayers, kHeads, 5}, "study");
  std::ofstream(text) << "layer,head,score\n";
  CHECK_THROWS_WITH(read(scratch.file("none.h5")), Contains("none.h5"));
  CHECK_THROWS_WITH(read(text), Contains("is not an HDF5 file"));
  CHECK_THROWS_WITH(read(path, "scores"), Contains("t.h5:/scores") && Contains("is missing"));
  CHECK_THROWS_WITH(read(path, "study"), Contains("is a group, not a dataset"));
  CHECK_THROWS_WITH(read(path, "study/scores/more"), Contains("study/scores"));
  CHECK(read(path, "study//scores") == read(path, "study/scores"));  // as HDF5 has it
  CHECK_THROWS_AS(read(path, "/"), Error);
  // A file that is cut off in the middle.
  const std::string whole = test::bytes_of(path), cut = scratch.file("cut.h5");
  std::ofstream(cut, std::ios::binary) << whole.substr(0, whole.size() / 2);
  CHECK_THROWS_AS(read(cut, "study/scores"), Error);
}

TEST_CASE("a replay takes its scores and masks from files") {
  const test::Scratch scratch;
  const std::string scores = scratch.file("scores.h5"), mask = scratch.file("mask.h5");
  // Scores that grow with the position keep the newest tokens; a mask of the last 8 prompt tokens is a
  // window.
  std::vector<double> growing(kLayers * kHeads * kTokens);
  std::vector<std::uint8_t> last(kLayers * kHeads * 24);
  for (std::size_t i = 0; i < growing.size(); ++i) growing[i] = static_cast<double>(i % kTokens);
  for (std::size_t i = 0; i < last.size(); ++i) last[i] = i % 24 >= 16 ? 1 : 0;
  write(scores, growing, {kLayers, kHeads, kTokens});
  write(mask, last, {kLayers, kHeads, 24});
  const trace::MemoryTrace trace = small_run();
  const sim::TableFiles tables{trace::Sequence(trace)};
  sim::Request request =
      test::request_of({"window", "external_scores(file=" + scores + ")",
                        "external_mask(file=" + mask + ",dataset=scores)", "random", "snapkv(window=8)"},
                       {"8"}, 2);
  request.tables = &tables;
  const sim::Outcome outcome = test::run(trace, request);
  CHECK(test::numbers(outcome.cells[1]) == test::numbers(outcome.cells[0]));
  // The mask appends generated tokens, as snapkv does with its window as its whole budget.
  for (std::size_t lane = 0; lane < kLayers * kHeads; ++lane) {
    CHECK(outcome.cells[2].lanes[lane].kept_tokens == 8);
    CHECK(outcome.cells[2].lanes[lane].held_at_end == 14);
    CHECK(outcome.cells[2].lanes[lane].attention_loss == outcome.cells[4].lanes[lane].attention_loss);
  }
}

namespace {

sim::Outcome replay_with(const trace::MemoryTrace& trace, const std::vector<std::string>& policies) {
  const sim::TableFiles tables{trace::Sequence(trace)};
  sim::Request request = test::request_of(policies, {"8"}, 2);
  request.decisions = true;
  request.tables = &tables;
  return test::run(trace, request);
}

void write_decisions_of(const trace::MemoryTrace& trace, const std::vector<std::string>& policies,
                        const std::string& path) {
  sim::write_decisions(
      path, sim::decisions_of(test::request_of(policies, {"8"}), replay_with(trace, policies)), true);
}

std::vector<std::vector<std::array<std::int64_t, 3>>> stays(const sim::CellOutcome& cell) {
  std::vector<std::vector<std::array<std::int64_t, 3>>> out;
  for (const std::vector<sim::ResidentInterval>& lane : cell.resident_intervals) {
    out.emplace_back();
    for (const sim::ResidentInterval& stay : lane)
      out.back().push_back({stay.position, stay.first, stay.last});
  }
  return out;
}

}  // namespace

TEST_CASE("a replay that follows a schedule holds what the policy of the schedule held") {
  const test::Scratch scratch;
  const trace::MemoryTrace trace = small_run();
  const std::vector<std::string> policies = {"full",
                                             "h2o",
                                             "keydiff",
                                             "snapkv(window=4)+xkv",
                                             "scissorhands(window=2)",
                                             "hashevict(sinks=1,window=2)",
                                             "tova(phase=post)",
                                             "optimal",
                                             "h2o(unit=layer)"};
  const std::string path = scratch.file("d.h5");
  write_decisions_of(trace, policies, path);
  const sim::Outcome own = replay_with(trace, policies);
  std::vector<std::string> schedules;
  for (std::size_t i = 0; i < policies.size(); ++i)
    schedules.push_back("external_schedule(file=" + path + ",cell=" + std::to_string(i) + ")");
  const sim::Outcome followed = replay_with(trace, schedules);
  for (std::size_t i = 0; i < policies.size(); ++i) {
    CAPTURE(policies[i], own.cells[i].skipped);
    REQUIRE(own.cells[i].skipped.empty());
    CHECK(stays(followed.cells[i]) == stays(own.cells[i]));
    for (std::size_t lane = 0; lane < kLayers * kHeads; ++lane)
      CHECK(followed.cells[i].lanes[lane].attention_loss == Approx(own.cells[i].lanes[lane].attention_loss));
  }
}

TEST_CASE("a schedule that a running cache cannot follow, or of another run, is refused") {
  const test::Scratch scratch;
  const trace::MemoryTrace trace = small_run();
  const std::string path = scratch.file("d.h5");
  const auto last_steps = [&](const std::string& cell) {
    return sim::TableFiles(trace::Sequence(trace)).row(path, "cells/" + cell + "/last_step", 1, 2);
  };
  write_decisions_of(trace, {"h2o"}, path);
  CHECK(last_steps("0000").size() == kTokens);
  CHECK_THROWS_WITH(last_steps("0001"), Contains("cells/0001: is not there; the file has 1 cells"));
  const std::string table = scratch.file("table.h5");
  write(table, counting<float>(kLayers * kHeads * 5), {kLayers, kHeads, 5});
  CHECK_THROWS_WITH(read(table, "cells/0000/last_step"), Contains("holds no decisions"));

  const trace::MemoryTrace longer =
      test::random_trace({.layers = kLayers, .kv_heads = kHeads, .prompt = 25, .decode = 6});
  write_decisions_of(longer, {"h2o"}, path);
  CHECK_THROWS_WITH(last_steps("0000"), Contains("a prompt of 25 tokens before the cut; here are 24"));
  const trace::MemoryTrace deeper =
      test::random_trace({.layers = kLayers + 1, .kv_heads = kHeads, .prompt = 24, .decode = 6});
  write_decisions_of(deeper, {"h2o"}, path);
  CHECK_THROWS_WITH(last_steps("0000"), Contains("3 layers of 3 KV heads; this one has 2 of 3"));

  // Position 20 leaves and comes back; position 25 is there before it was generated.
  sim::Decisions decisions{.prompt = 24, .decode = 6, .n_layers = kLayers, .n_kv_heads = kHeads, .cells = {}};
  decisions.cells.push_back({"p", "p()", "8", "", std::vector<std::vector<sim::ResidentInterval>>(6)});
  decisions.cells[0].resident_intervals[4] = {{20, 0, 2}, {20, 4, 6}};
  sim::write_decisions(path, decisions, true);
  CHECK_THROWS_WITH(last_steps("0000"), Contains("position 20 of lane 4 is not held from its own step"));
  decisions.cells[0].resident_intervals[4] = {{25, 1, 2}};
  sim::write_decisions(path, decisions, true);
  CHECK_THROWS_WITH(last_steps("0000"), Contains("position 25 of lane 4"));
  decisions.cells[0].skipped = "no reason";
  sim::write_decisions(path, decisions, true);
  CHECK_THROWS_WITH(last_steps("0000"), Contains("did not run: no reason"));
}

}  // namespace kvsim::test_table_files
