// Any bytes either are a table or are refused as an input error, and a table is the same after writing and
// reading it again.
#include "analysis/results/reading/read_tables.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_csv {
namespace {

void read(std::string_view input) {
  const std::string written = analysis::csv_text(analysis::parse_csv(input, "a.csv"));
  require(analysis::csv_text(analysis::parse_csv(written, "a.csv")) == written,
          "a table written is read as it was");
}

const Registered kTarget({"csv", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_csv
