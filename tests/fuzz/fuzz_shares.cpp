// Any bytes either are numbers per layer and head, as JSON, tsv or csv, or are refused as an input error.
#include <cmath>

#include "sim/replay/table_files.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_shares {
namespace {

void read(std::string_view input) {
  static const InputOnDisk kJson(".json"), kTsv(".tsv"), kCsv(".csv");
  const std::size_t first = input.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && (input[first] == '{' || input[first] == '[');
  const InputOnDisk& file = json ? kJson : input.find('\t') != std::string_view::npos ? kTsv : kCsv;
  for (const std::vector<double>& row : sim::read_matrix(file.write(input)))
    for (const double number : row) require(std::isfinite(number), "shares are finite");
}

const Registered kTarget({"shares", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_shares
