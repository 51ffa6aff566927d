// Any bytes either are tables of a calibration or are refused as an input error; what is accepted is finite,
// belongs together, and is the same after writing and reading it again.
#include <cmath>

#include "sim/replay/calibration_tables.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_calibration {
namespace {

void read(std::string_view input) {
  static const InputOnDisk kFile(".h5"), kAgain("-again.h5");
  const sim::Calibration read = sim::read_calibration(kFile.write(input));
  require(!read.traces.empty() && !read.tables.empty(), "something was measured on some run");
  for (const sim::Calibration::Table& table : read.tables) {
    require(table.values.size() == read.n_layers * read.n_kv_heads * table.numbers,
            "every KV head has its numbers");
    for (const float number : table.values) require(std::isfinite(number), "tables are finite");
  }
  sim::write_calibration(kAgain.path(), read, true);
  const sim::Calibration again = sim::read_calibration(kAgain.path());
  require(again.maker == read.maker && again.tables.size() == read.tables.size(),
          "a file is read as it was written");
  for (std::size_t i = 0; i < read.tables.size(); ++i)
    require(again.tables[i].values == read.tables[i].values, "a table is read as it was written");
}

const Registered kTarget({"calibration", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_calibration
