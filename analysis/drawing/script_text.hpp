#pragma once
/// Pieces of gnuplot's language.
#include <string>
#include <string_view>
#include <vector>

#include "analysis/drawing/axis_scale.hpp"
#include "analysis/drawing/theme.hpp"

namespace kvsim::analysis {

/// A string that stands for itself: between single quotes gnuplot knows nothing but the quote.
std::string gp_string(std::string_view text);
/// Lines of a comment: nothing in `text` ends it or goes on in the next line.
std::string gp_comment(std::string_view text);
/// #rrggbb.
std::string hex(Rgb colour);
/// The same between single quotes.
std::string gp_colour(Rgb colour);
/// Seven digits: finer than any page; NaN for what is not finite.
std::string gp_number(double value);
/// A place on the page as gnuplot's screen coordinate.
std::string gp_share(double points, double of);
/// ('a' 0, 'b' 1): labels are formats to gnuplot, so % is doubled.
std::string gp_ticks(const std::vector<Tick>& ticks);

}  // namespace kvsim::analysis
