#pragma once
#include <string>

#include "analysis/drawing/figure.hpp"
#include "analysis/drawing/theme.hpp"

namespace kvsim::analysis {

/// gnuplot's svg of a figure, fit for pages: title and description for those who hear it (reading, remark and
/// command of the figure), names of parts that are unique where several drawings stand in one page, and cells
/// of large heat maps left square instead of blurred.
std::string page_svg(const std::string& svg, const Figure& figure, Theme theme);

}  // namespace kvsim::analysis
