// Any bytes either are rows of results, one JSON object a line, or are refused as an input error; rows are
// the same after writing and reading them again.
#include <sstream>

#include "analysis/results/reading/read_tables.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_results_jsonl {
namespace {

std::string written(const analysis::Records& records) {
  std::ostringstream out;
  analysis::write_jsonl(out, records);
  return out.str();
}

void read(std::string_view input) {
  const std::string lines = written(analysis::parse_json_lines(input, "a.jsonl"));
  require(written(analysis::parse_json_lines(lines, "a.jsonl")) == lines,
          "rows written are read as they were");
}

const Registered kTarget({"results_jsonl", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_results_jsonl
