#pragma once
/// What charts and sentences of figures are put together from.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"

namespace kvsim::analysis {

/// The series of that label, which is added if there is none.
Series& series_named(Chart& chart, const std::string& label);
/// Points by their x.
void sort_points(Series& series);
void sort_points(Chart& chart);
/// Those of `curves`, by policy, that are named, in that order; then all others, grey under one name.
void add_curves(Chart& chart, const std::map<std::string, Series>& curves,
                const std::vector<std::string>& named, const char* others = "other policies");
/// Where `name` stands in `names`; negative: nowhere.
int place_in(const std::vector<std::string>& names, const std::string& name);

/// Layers 0 to n - 1: by name while there is room.
Axis layer_axis(std::size_t n);

/// Adds a sentence, if it is one, to those that are there.
void add_sentence(std::string& text, const std::string& sentence);
/// "one trace", "mean over 24 traces", "mean over 6 traces of copy"; `workload` "all" or empty: of any.
std::string traces_text(std::uint64_t traces, const std::string& workload = "");

}  // namespace kvsim::analysis
