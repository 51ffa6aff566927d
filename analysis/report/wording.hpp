#pragma once
/// Numbers and names as sentences have them. Names stand in `backquotes`, which pages show as code.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {

/// "12.3%", "0.1234".
std::string value_text(const Metric& metric, double value);
/// The size of a difference: "0.8 points" for shares, "0.0123" otherwise.
std::string difference_text(const Metric& metric, double difference);
/// "10.1% to 14.2%"; "no interval: too few traces".
std::string interval_text(const Metric& metric, std::optional<double> low, std::optional<double> high);
/// "0.2 to 1.5 points".
std::string difference_interval_text(const Metric& metric, double low, double high);

/// "10%", "128 tokens".
std::string budget_text(const std::string& budget);
std::string quoted_name(const std::string& name);
/// "`a`, `b` and 3 more"; at most `shown` by name.
std::string names_text(const std::vector<std::string>& names, std::size_t shown = 6);
/// "1 trace", "2 traces".
std::string count_text(std::uint64_t n, const std::string& thing);
/// "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& items);

}  // namespace kvsim::analysis
