#pragma once
/// Numbers as text. All that take one throw Error(bug) for what is not finite: an undefined metric is null,
/// never NaN.
#include <string>

namespace kvsim::analysis {

/// Shortest text that reads back as exactly this number.
std::string exact_text(double value);

/// For people: four decimals unless told, so that shares read as percent do; what would round to nothing
/// keeps two digits (3.2e-06), and whole numbers show no decimals.
std::string rounded_text(double value, int decimals = 4);

/// So many decimals, zeros at the end included.
std::string fixed_text(double value, int decimals);

}  // namespace kvsim::analysis
