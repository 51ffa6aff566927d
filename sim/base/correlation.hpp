#pragma once
/// How two lists of numbers vary together.
#include <optional>
#include <span>

namespace kvsim {

double mean_of(std::span<const double> values);
/// Returns Pearson's correlation of `x` and `y`, which have equal lengths; none when either is constant or
/// both are empty.
std::optional<double> pearson(std::span<const double> x, std::span<const double> y);

}  // namespace kvsim
