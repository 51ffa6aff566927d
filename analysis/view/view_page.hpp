#pragma once
/// A view as one HTML page that needs nothing else: no network, no file.
#include <string>

#include "analysis/view/cache_view.hpp"

namespace kvsim::analysis {

/// `cells` are those of the request that made the view: every policy at one budget after the other. `title`
/// is shown as text; empty: the trace's name.
std::string view_page(const CacheView& view, const std::vector<sim::Cell>& cells,
                      const std::string& title = {});

}  // namespace kvsim::analysis
