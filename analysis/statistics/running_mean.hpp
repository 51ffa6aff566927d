#pragma once
#include <optional>

namespace kvsim::analysis {

/// A mean of numbers that come one by one; undefined without any.
class RunningMean {
 public:
  void add(double value) {
    sum_ += value;
    count_ += 1;
  }
  std::optional<double> value() const { return count_ > 0 ? std::optional(sum_ / count_) : std::nullopt; }

 private:
  double sum_ = 0, count_ = 0;
};

}  // namespace kvsim::analysis
