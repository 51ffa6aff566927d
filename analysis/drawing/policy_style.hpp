#pragma once
/// One colour and one mark per policy name, in every figure, page and study. They follow from the name alone:
/// adding a policy moves no other. Policies of a family, which judge tokens by the same thing, share a hue;
/// marks (shape, shade and dash) tell all listed ones apart without colour.
#include <array>
#include <string_view>

#include "analysis/drawing/theme.hpp"

namespace kvsim::analysis {

/// Circle, square, triangle up, triangle down, diamond, pentagon.
inline constexpr std::size_t kShapes = 6;
/// Whole, dashed, dotted.
inline constexpr std::size_t kDashes = 3;

struct PolicyStyle {
  std::array<Rgb, 2> colours{};  ///< light theme, dark theme
  std::size_t shape = 0;         ///< below kShapes
  bool open = false;             ///< not filled: the label says more than the listed name
  std::size_t dash = 0;          ///< of the line, below kDashes; 0: none

  Rgb colour(Theme theme) const { return colours[theme == Theme::light ? 0 : 1]; }
};

/// Of a label: "keydiff", "keydiff+adakv", "keydiff(sinks=4)". The first name decides the hue; of
/// "full+quest" it is the second, because full decides nothing. A name that is not listed has the colour and
/// the mark of its hash, and so has what follows a name.
PolicyStyle policy_style(std::string_view label);

}  // namespace kvsim::analysis
