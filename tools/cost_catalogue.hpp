#pragma once
/// The models and machines kvsim knows by name, as tables.
#include <iosfwd>

#include "analysis/records.hpp"

namespace kvsim::tools {

/// In base units, with the source of each row.
analysis::Records model_records();
analysis::Records machine_records();

/// For people: sources below the table.
void write_model_table(std::ostream& out);
void write_machine_table(std::ostream& out);

}  // namespace kvsim::tools
