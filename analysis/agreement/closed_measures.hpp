#pragma once
/// What a closed loop measures that policies are compared by.
#include <string_view>
#include <vector>

#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {

/// A column of the rows of `kvsim evaluate` (analysis/README.md).
struct ClosedMeasure {
  const char* key;
  Better better;
};

/// The most telling first: answers, then predictions of the next token.
const std::vector<ClosedMeasure>& closed_measures();
/// Throws Error(usage) with the nearest names.
const ClosedMeasure& closed_measure(std::string_view key);

/// What a replay measures that policies are compared by: those of metrics() with a better direction.
std::vector<const Metric*> open_measures();
/// Throws Error(usage) with the nearest names.
const Metric& open_measure(std::string_view key);

}  // namespace kvsim::analysis
