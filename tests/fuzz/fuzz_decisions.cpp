// Any bytes either are decisions, of which a policy can follow the last steps, or are refused as an input
// error.
#include "sim/replay/decisions.hpp"
#include "sim/replay/table_files.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/random_trace.hpp"

namespace kvsim::fuzz::fuzz_decisions {
namespace {

void read(std::string_view input) {
  static const InputOnDisk kFile(".h5");
  static const trace::MemoryTrace kRun =
      test::random_trace({.layers = 2, .kv_heads = 2, .prompt = 6, .decode = 2});
  const std::string& path = kFile.write(input);
  const sim::Decisions decisions = sim::read_decisions(path);
  for (const sim::Decisions::Cell& cell : decisions.cells)
    for (const std::vector<sim::ResidentInterval>& lane : cell.resident_intervals)
      for (const sim::ResidentInterval& interval : lane)
        require(interval.first < interval.last, "what is resident is so for a step at least");
  accepts([&] { sim::TableFiles{trace::Sequence(kRun)}.row(path, "cells/0000/last_step", 1, 1); });
}

const Registered kTarget({"decisions", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_decisions
