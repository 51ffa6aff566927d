#pragma once
/// What both completion scripts say of values.
#include <map>
#include <string>
#include <vector>

#include "tools/printing/command_line.hpp"

namespace kvsim::tools {

/// What completes a value, as the scripts name it: "@policies", "@files", "@none", or words with spaces
/// between.
std::string value_name(const Completed& completed);

/// What may stand right behind a command's name, and what after other arguments.
std::string first_value(const DescribedCommand& command);
std::string later_value(const DescribedCommand& command);

/// Which options ("kvsim replay --policy") take which values: by value_name().
std::map<std::string, std::vector<std::string>> options_by_value(
    const std::vector<DescribedCommand>& commands);

/// One of the names, as `case` takes it.
std::string patterns(const std::vector<std::string>& names);

}  // namespace kvsim::tools
