#pragma once
/// The models and machines kvsim knows by name, as tables.
#include <iosfwd>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::tools {

/// All that are known, or those of `names`, which may be files, too. In base units, with the source of each
/// row. Errors as find_model() and find_machine().
analysis::Records model_records(const std::vector<std::string>& names);
analysis::Records machine_records(const std::vector<std::string>& names);

/// For people: with the sources below those that are named.
void write_model_table(std::ostream& out, const std::vector<std::string>& names);
void write_machine_table(std::ostream& out, const std::vector<std::string>& names);

}  // namespace kvsim::tools
