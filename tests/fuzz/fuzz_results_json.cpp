// Any bytes either are a document of results or are refused as an input error; its table can be written and
// read.
#include "analysis/results/reading/read_tables.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_results_json {
namespace {

void read(std::string_view input) {
  const analysis::Records records = analysis::parse_json_document(input, "a.json");
  for (const std::vector<analysis::Value>& row : records.rows)
    require(row.size() == records.columns.size(), "a row has a field for every column");
  analysis::csv_text(records);
}

const Registered kTarget({"results_json", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_results_json
