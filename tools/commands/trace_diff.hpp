#pragma once
/// kvsim diff of two traces.
#include <string>

#include "analysis/results/document.hpp"
#include "traces/comparison/trace_comparison.hpp"

namespace kvsim::tools {

struct TraceDiff {
  analysis::Document document;
  bool same = true;
};

struct TraceDiffOptions {
  trace::ComparisonOptions comparison{};
  bool each_layer = false;     ///< a row per tensor and layer, not per tensor for its worst layer
  bool notes_headers = false;  ///< what headers say differently is told in notes, not in rows of their own
  bool quiet = false;          ///< no progress
};

TraceDiff diff_traces(const std::string& a, const std::string& b, const TraceDiffOptions& options);

}  // namespace kvsim::tools
