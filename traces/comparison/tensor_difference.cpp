#include "traces/comparison/tensor_difference.hpp"

#include <algorithm>
#include <cmath>

namespace kvsim::trace {

double DifferenceMeter::Sums::relative_error() const {
  return difference == 0 ? 0 : std::sqrt(difference / std::max(aa, bb));
}

void DifferenceMeter::add(std::uint32_t head, std::uint64_t row, std::span<const float> a,
                          std::span<const float> b) {
  Sums sums;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    const double difference = std::abs(x - y);
    sums.aa += x * x;
    sums.bb += y * y;
    sums.ab += x * y;
    sums.difference += difference * difference;
    if (difference == 0) continue;
    ++found_.unequal;
    if (difference <= found_.largest) continue;
    found_.largest = difference;
    found_.a = a[i];
    found_.b = b[i];
    found_.head = head;
    found_.row = row;
    found_.component = i;
  }
  ++found_.rows;
  found_.values += a.size();
  sums_.aa += sums.aa;
  sums_.bb += sums.bb;
  sums_.ab += sums.ab;
  sums_.difference += sums.difference;
  const double error = sums.relative_error();
  found_.largest_row_error = std::max(found_.largest_row_error, error);
  if (error > row_tolerance_) found_.first_row_beyond = std::min(found_.first_row_beyond.value_or(row), row);
}

const TensorDifference& DifferenceMeter::difference() {
  found_.relative_error = sums_.relative_error();
  if (sums_.aa > 0 && sums_.bb > 0)
    found_.cosine = std::clamp(sums_.ab / (std::sqrt(sums_.aa) * std::sqrt(sums_.bb)), -1.0, 1.0);
  return found_;
}

}  // namespace kvsim::trace
