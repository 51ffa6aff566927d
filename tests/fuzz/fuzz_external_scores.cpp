// Any bytes either are HDF5 scores that fit a run or are refused as an input error; a row of an accepted
// table is finite and at most as long as the run.
#include <cmath>

#include "sim/replay/table_files.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/random_trace.hpp"

namespace kvsim::fuzz::fuzz_external_scores {
namespace {

void read(std::string_view input) {
  static const InputOnDisk kFile(".h5");
  static const trace::MemoryTrace kRun =
      test::random_trace({.layers = 2, .kv_heads = 2, .prompt = 6, .decode = 2});
  const std::string& path = kFile.write(input);
  const sim::TableFiles tables{trace::Sequence(kRun)};
  for (const float score : tables.row(path, "scores", 1, 1))
    require(std::isfinite(score), "scores are finite");
}

const Registered kTarget({"external_scores", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_external_scores
