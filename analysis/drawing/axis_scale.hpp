#pragma once
/// From an axis and the numbers on it to a range and its ticks, chosen here and not by the drawing program,
/// so that a figure is the same everywhere and its margins are known.
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"

namespace kvsim::analysis {

struct Tick {
  double at = 0;
  std::string label{};
};

struct Scale {
  double low = 0, high = 1;  ///< low < high; both above 0 when log
  bool log = false;
  bool reversed = false;  ///< low is at the top, or on the right
  std::vector<Tick> ticks{};

  /// Characters of the longest label.
  std::size_t label_length() const;
};

/// A number line through `values` with about `count` ticks; with room at its ends when `padded`. A log axis
/// through values that are not all above 0 is drawn linear. Where at most `count` different values stand on a
/// log axis, or it says so, they are its ticks. Values that are not finite do not count.
Scale number_scale(const Axis& axis, std::vector<double> values, std::size_t count, bool padded);

/// Names at 0, 1, 2, ..., with half a place at both ends; every k-th of them where there is `room` for fewer.
Scale category_scale(const Axis& axis, std::size_t room, std::size_t longest_label);

}  // namespace kvsim::analysis
