#pragma once
/// Where a command's results go, and as what: the same options everywhere.
#include <string>

#include "analysis/results/format.hpp"
#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

struct OutputOptions {
  std::string format{};  ///< as typed; empty: as the file's name ends, else a table
  std::string output{};  ///< empty: standard output
  bool overwrite = false;
};

/// Adds --wide and --columns, which set table_look(): of commands that print tables.
void add_table_options(Command command);

/// Adds --format, -o, --overwrite, and those of tables.
void add_output_options(Command command, OutputOptions& options);

/// What the results are written as. Throws Error(usage) for an unknown format, one that is not what the name
/// of the file says, and a name that ends like none.
analysis::Format chosen_format(const OutputOptions& options);

/// For files of one format only: throws Error(usage) if PATH ends like another one of tables.
void require_ending(const std::string& path, analysis::Format format);

}  // namespace kvsim::tools
