#pragma once
/// Runs as people read them: what differs between them, and what matters most.
#include <iosfwd>
#include <string>
#include <vector>

#include "analysis/requests/serving_records.hpp"

namespace kvsim::analysis {

/// So many decimals, "-" for what is not finite.
std::string real_text(double value, int decimals);

void write_serving_table(std::ostream& out, const ServingGrid& grid, const std::vector<ServingRun>& runs);

}  // namespace kvsim::analysis
