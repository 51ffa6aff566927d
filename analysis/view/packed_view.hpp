#pragma once
/// A view as the bytes that its page unpacks (analysis/view/view_script.js reads what this writes).
///
/// `v` is an unsigned LEB128 number, a list of ascending numbers is its length and their differences, each v.
/// - v length, and a JSON object: names, numbers, and of each cell how many bytes it has below
/// - of each token: v bytes of its text; then all texts; then of each token a byte of ViewedToken bits
/// - of each row: its positions as a list, then of each entry a byte: -16 log2(share), at most 255
/// - of each cut, each cell: per lane, a bit per token of the prompt that is held at step 0, then of each
/// step
///   after it a list of the positions whose state is not that of the step before, where the arriving token is
///   taken as held; then of each measured step, of each entry of its row, a byte: the share of its attention
///   that is left, of 255; then of each measured step two bytes, low first: the share of all attention that
///   is left, of 65534, or 65535 where that is not known
#include <string>

#include "analysis/view/cache_view.hpp"

namespace kvsim::analysis {

/// `cells` are those of the request that made the view: every policy at one budget after the other.
std::string packed_view(const CacheView& view, const std::vector<sim::Cell>& cells);

}  // namespace kvsim::analysis
