// Any bytes either are HDF5 results or are refused as an input error; their tables can be written.
#include "analysis/results/reading/read_tables.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_results_hdf5 {
namespace {

void read(std::string_view input) {
  static const InputOnDisk kFile(".h5");
  const std::string& path = kFile.write(input);
  if (!analysis::holds_hdf5_results(path)) input_error("holds no results", path);
  for (const analysis::NamedTable& table : analysis::read_hdf5_tables(path))
    analysis::csv_text(table.records);
}

const Registered kTarget({"results_hdf5", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_results_hdf5
