#pragma once
/// Tables with rows per trace and layer, as figures of layers read them.
#include <map>
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"

namespace kvsim::analysis {

/// The rows of each of distinct(table, key).
std::vector<Records> split_by(const Records& table, std::string_view key);
/// The rows of each number in a column; those where it is undefined are left out.
std::map<double, Records> split_by_number(const Records& table, std::string_view key);

/// x -> what there is at x, one value per trace.
using Gathered = std::map<double, std::vector<double>>;
/// Rows where either is undefined are left out.
Gathered gather(const Records& table, std::string_view x, std::string_view y);

double mean_of(const std::vector<double>& values);
/// Mean over traces, with the least and the most of any as interval if there are several.
std::vector<Point> spread_over_traces(const Gathered& values);

/// Layers 0 to n - 1: by name while there is room.
Axis layer_axis(std::size_t n);

}  // namespace kvsim::analysis
