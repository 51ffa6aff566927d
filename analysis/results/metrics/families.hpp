#pragma once
/// The declarations, a file per family (metrics/<family>_metrics.cpp). A new metric is one more entry in the
/// family it belongs to; a new family one more line here and in all_metrics().
#include <vector>

#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {

std::vector<Metric> evidence_metrics();    ///< what is held and lost of marked tokens
std::vector<Metric> peak_metrics();        ///< what is lost where a row looks at few far keys
std::vector<Metric> attention_metrics();   ///< what is lost of attention
std::vector<Metric> stored_metrics();      ///< how far what is stored is off, and what it takes
std::vector<Metric> output_metrics();      ///< how far the compressed cache's output is off
std::vector<Metric> read_metrics();        ///< how much is read of what is held
std::vector<Metric> importance_metrics();  ///< what is retained of the prompt's importance
std::vector<Metric> size_metrics();        ///< how much is held
std::vector<Metric> segment_metrics();     ///< how much is held of each kind of prompt token
std::vector<Metric> bound_metrics();       ///< best over all splits of the total
std::vector<Metric> serving_metrics();     ///< what serving takes on a machine

}  // namespace kvsim::analysis
