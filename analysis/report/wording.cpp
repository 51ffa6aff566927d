#include "analysis/report/wording.hpp"

#include <cmath>

#include "analysis/results/numbers.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// One decimal, or as many as show two digits of a small number: 0.014.
std::string percent_text(double percent) {
  int decimals = 1;
  for (double least = 0.05; percent < least && decimals < 6; least /= 10)
    decimals = decimals == 1 ? 3 : decimals + 1;
  return rounded_text(percent, decimals);
}

/// Shares in percent with one decimal, whole ones too: 9.0 beside 10.5. What cancels but for rounding is 0.
std::string plain(const Metric& metric, double value) {
  constexpr double kNoise = 1e-12;
  if (std::abs(value) < kNoise) return "0";
  std::string size = metric.percent ? percent_text(100 * std::abs(value)) : rounded_text(std::abs(value));
  if (metric.percent && size.find_first_of(".e") == std::string::npos) size += ".0";
  return (value < 0 ? "\u2212" : "") + size;
}

}  // namespace

std::string value_text(const Metric& metric, double value) {
  return plain(metric, value) + (metric.percent ? "%" : "");
}

std::string difference_text(const Metric& metric, double difference) {
  return plain(metric, std::abs(difference)) + (metric.percent ? " points" : "");
}

std::string interval_text(const Metric& metric, std::optional<double> low, std::optional<double> high) {
  if (!low || !high) return "no interval: too few traces";
  return value_text(metric, *low) + " to " + value_text(metric, *high);
}

std::string difference_interval_text(const Metric& metric, double low, double high) {
  return plain(metric, low) + " to " + plain(metric, high) + (metric.percent ? " points" : "");
}

std::string budget_text(const std::string& budget) {
  const bool tokens = !budget.empty() && budget.find_first_not_of("0123456789") == std::string::npos;
  return tokens ? budget + (budget == "1" ? " token" : " tokens") : budget;
}

std::string quoted_name(const std::string& name) {
  return '`' + name + '`';
}

std::string names_text(const std::vector<std::string>& names, std::size_t shown) {
  // "and 1 more" is longer than most names.
  const std::size_t named = names.size() <= shown + 1 ? names.size() : shown;
  std::vector<std::string> items;
  for (std::size_t i = 0; i < named; ++i) items.push_back(quoted_name(names[i]));
  if (named < names.size()) items.push_back(std::to_string(names.size() - named) + " more");
  return listed(items);
}

std::string count_text(std::uint64_t n, const std::string& thing) {
  return std::to_string(n) + ' ' + thing + (n == 1 ? "" : "s");
}

std::string listed(const std::vector<std::string>& items) {
  if (items.size() < 2) return joined(items);
  return joined({items.begin(), items.end() - 1}) + " and " + items.back();
}

}  // namespace kvsim::analysis
