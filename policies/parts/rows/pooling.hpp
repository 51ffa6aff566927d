#pragma once
/// Smooths scores along positions, stride 1, same length, as PyTorch's pooling does: the average counts zero
/// padding in its divisor unless told otherwise, the maximum ignores padding.
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace kvsim::policy {

struct Pooling {
  enum class Kind { none, average, maximum };
  Kind kind = Kind::none;
  std::size_t kernel = 1;  ///< odd
  bool padded = true;      ///< zeros outside count in the divisor of the average

  /// Parses a ParamType::pool value that passed validation.
  static Pooling parse(std::string_view text);
};

std::vector<double> pooled(const Pooling& pooling, std::span<const double> values);

}  // namespace kvsim::policy
