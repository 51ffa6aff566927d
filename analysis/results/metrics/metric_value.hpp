#pragma once
/// A number of a result: a count, a real number, or undefined.
#include <concepts>
#include <cstdint>
#include <optional>
#include <variant>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

class MetricValue {
 public:
  MetricValue() = default;
  MetricValue(double value) : value_(value) {}
  MetricValue(std::unsigned_integral auto count) : value_(std::uint64_t{count}) {}
  MetricValue(const std::optional<double>& value) {
    if (value) value_ = *value;
  }

  /// The count, or the real number; nothing if undefined.
  std::optional<double> real() const {
    if (const auto* count = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*count);
    if (const auto* value = std::get_if<double>(&value_)) return *value;
    return {};
  }
  /// As a field: counts stay exact.
  Value field() const {
    if (const auto* count = std::get_if<std::uint64_t>(&value_)) return *count;
    if (const auto* value = std::get_if<double>(&value_)) return *value;
    return {};
  }

 private:
  std::variant<std::monostate, std::uint64_t, double> value_;
};

}  // namespace kvsim::analysis
