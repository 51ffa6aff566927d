#pragma once
/// The closed loop's answers in a view.
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "analysis/view/cache_view.hpp"

namespace kvsim::analysis {

/// Adds what rows of `kvsim evaluate` say that the model answered to one of `items` (names of the viewed run)
/// through the cache of each cell: rows of greedy mode with the cell's params and budget at the view's cuts.
/// `where` names the rows in messages. Throws Error(input) for rows of something else, and where none is of
/// this run and these cells.
void add_answers(const Records& rows, const std::vector<std::string>& items,
                 const std::vector<sim::Cell>& cells, const std::string& where, CacheView& view);

}  // namespace kvsim::analysis
