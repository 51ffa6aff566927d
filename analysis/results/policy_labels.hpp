#pragma once
/// Short names for the policies of a table.
#include <map>
#include <string>
#include <vector>

#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// params -> label: the row's policy name; where one name stands for several parameter sets, followed by the
/// parameters in which those differ: "h2o(recent=0.9)".
std::map<std::string, std::string> policy_labels(const std::vector<Row>& rows);
/// The same of a table with columns policy and params.
std::map<std::string, std::string> policy_labels(const Records& rows);

}  // namespace kvsim::analysis
