#pragma once
/// Exponentials of many numbers.
#include <span>

namespace kvsim {

/// Makes each e^(x - the largest x), to about 1 ulp, 0 below e^-708. Returns their sum, in an order that
/// their number alone decides. At least one number.
double exponentials(std::span<double> numbers);

}  // namespace kvsim
