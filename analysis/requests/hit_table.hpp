#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "analysis/requests/hit_rows.hpp"

namespace kvsim::analysis {

/// For people: capacities down, policies across, the share of prompt tokens that hits; with a model on a
/// machine the share of prefill seconds that is saved, too. With parts a line for each of them.
void write_hit_table(std::ostream& out, const HitGrid& grid, const std::vector<HitRow>& rows);

}  // namespace kvsim::analysis
