#pragma once
/// How the importance w behind R, R_avg and ISR is measured. The paper's numbers are the default; others show
/// how sensitive R is to them.
#include <cstddef>
#include <string>
#include <string_view>

#include "policies/parts/pooling.hpp"

namespace kvsim::sim {

/// XKV's w (policies/parts/window_importance.hpp; arXiv 2412.05896).
struct ImportanceRule {
  std::size_t rows = 8;  ///< last prompt rows that are averaged, at least 1
  policy::Pooling pooling{policy::Pooling::Kind::average, 7};
  std::string text = "rows=8,pool=avg:7";  ///< canonical
};

/// "rows=8,pool=avg:7"; what is left out is the default. Throws Error(usage).
ImportanceRule parse_importance(std::string_view text);

}  // namespace kvsim::sim
