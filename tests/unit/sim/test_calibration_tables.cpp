// Tests calibrations: measured on runs in memory, written, read, and kept from the runs they come from.
#include <catch2/catch.hpp>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/calibration_tables.hpp"
#include "sim/replay/table_files.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/unit/traces/scratch.hpp"

namespace kvsim::test_calibration_tables {

using Catch::Contains;

namespace {

/// Runs of different seeds have different tokens, too: their prompts are of different lengths.
trace::MemoryTrace run_of(std::uint64_t seed, std::uint32_t layers = 2) {
  return test::random_trace(
      {.layers = layers, .kv_heads = 3, .prompt = 24 + seed, .decode = 6, .seed = seed});
}

sim::Calibration measured(const std::string& codec, const std::vector<const trace::Sequence*>& sequences) {
  const policy::Part part = *policy::parse_composition("full+" + codec, policy::builtin()).representation;
  std::vector<sim::CalibrationRun> runs;
  for (const trace::Sequence* sequence : sequences)
    runs.push_back({"run" + std::to_string(runs.size()), sequence});
  Progress progress;
  return sim::calibrate(part, runs, progress);
}

}  // namespace

TEST_CASE("a calibration is written and read back as it was measured") {
  const test::Scratch scratch;
  const trace::MemoryTrace a = run_of(1), b = run_of(2);
  const trace::Sequence one(a), two(b);
  const sim::Calibration made = measured("matryoshka(file=x)", {&one, &two});
  CHECK(made.maker == "matryoshka()");
  REQUIRE(made.traces.size() == 2);
  CHECK(made.traces[0].tokens == one.length());
  CHECK(made.traces[0].prompt_sha256 != made.traces[1].prompt_sha256);
  REQUIRE(made.tables.size() == 4);
  const std::string path = scratch.file("made.h5");
  sim::write_calibration(path, made, false);
  const sim::Calibration read = sim::read_calibration(path);
  CHECK(read.maker == made.maker);
  CHECK(read.traces[1].prompt_sha256 == made.traces[1].prompt_sha256);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(read.tables[i].name == made.tables[i].name);
    CHECK(read.tables[i].values == made.tables[i].values);
  }
  // A lane's numbers are where its layer and head say.
  const trace::MemoryTrace c = run_of(3);
  const trace::Sequence third(c);
  const sim::TableFiles files(third);
  const sim::Calibration::Table& table = made.tables[0];
  const std::vector<float> lane = files.calibrated({path, "matryoshka()", false}, table.name, 1, 2);
  REQUIRE(lane.size() == table.numbers);
  for (std::size_t i = 0; i < lane.size(); ++i) CHECK(lane[i] == table.values[(3 + 2) * table.numbers + i]);
}

TEST_CASE("a calibration is kept from its own runs, other codecs and other models") {
  const test::Scratch scratch;
  const trace::MemoryTrace a = run_of(1), b = run_of(2), deep = run_of(3, 4);
  const trace::Sequence one(a), two(b), other_model(deep);
  const std::string path = scratch.file("made.h5");
  sim::write_calibration(path, measured("cskv(file=x)", {&one}), false);
  const auto asked = [&](const trace::Sequence& sequence, const char* maker, bool own) {
    return sim::TableFiles(sequence).calibrated({path, maker, own}, "key_components", 0, 0);
  };
  CHECK_NOTHROW(asked(two, "cskv()", false));
  CHECK_NOTHROW(asked(one, "cskv()", true));
  CHECK_THROWS_WITH(asked(one, "cskv()", false), Contains("was measured on this run, as run0"));
  // Wherever a cut ends the prompt it is the same run.
  const trace::Sequence cut(a, 0, trace::parse_cut("10"));
  CHECK_THROWS_WITH(asked(cut, "cskv()", false), Contains("was measured on this run"));
  CHECK_THROWS_WITH(asked(two, "matryoshka()", false), Contains("was made for cskv(), not for matryoshka()"));
  CHECK_THROWS_WITH(asked(other_model, "cskv()", false), Contains("is of another model"));
  CHECK_THROWS_WITH(sim::TableFiles(two).calibrated({path, "cskv()", false}, "none", 0, 0),
                    Contains("is not there"));
  CHECK_THROWS_WITH(measured("cskv(file=x)", {&one, &other_model}), Contains("the first trace"));
  CHECK_THROWS_AS(measured("cskv(file=x)", {}), Error);
}

TEST_CASE("a calibration stops when it is asked to") {
  const trace::MemoryTrace a = run_of(1);
  const trace::Sequence one(a);
  const policy::Part part = *policy::parse_composition("full+cskv(file=x)", policy::builtin()).representation;
  const std::vector<sim::CalibrationRun> runs{{"run", &one}};
  Progress progress;
  progress.stop = true;
  CHECK_THROWS_WITH(sim::calibrate(part, runs, progress), "interrupted");
}

}  // namespace kvsim::test_calibration_tables
