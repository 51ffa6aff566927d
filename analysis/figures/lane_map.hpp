#pragma once
/// Heat maps with a cell per layer and head.
#include <string>

#include "analysis/drawing/figure.hpp"

namespace kvsim::analysis {

/// Column `value` of a table with one row per `layer` and `head`; layers from the top down. `head` says which
/// heads they are, `unit` what the colours mean.
HeatMap lane_map(const Records& means, const std::string& value, const std::string& head,
                 const std::string& unit);

}  // namespace kvsim::analysis
