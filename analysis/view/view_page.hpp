#pragma once
/// A view as one HTML page that needs nothing else: no network, no file.
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "analysis/view/cache_view.hpp"

namespace kvsim::analysis {

/// `cells` are those of the request that made the view: every policy at one budget after the other. `title`
/// is shown as text; empty: the trace's name.
std::string view_page(const CacheView& view, const std::vector<sim::Cell>& cells,
                      const std::string& title = {});

// The closed loop's answers in a view.

/// Adds what rows of `kvsim evaluate` say that the model answered to one of `items` (names of the viewed run)
/// through the cache of each cell: rows of greedy mode with the cell's params and budget at the view's cuts.
/// `where` names the rows in messages. Throws Error(input) for rows of something else, and where none is of
/// this run and these cells.
void add_answers(const Records& rows, const std::vector<std::string>& items,
                 const std::vector<sim::Cell>& cells, const std::string& where, CacheView& view);

}  // namespace kvsim::analysis
