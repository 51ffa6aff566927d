#include "analysis/figures/figure_kind.hpp"

namespace kvsim::analysis {

std::vector<FigureKind> request_figures() {
  return {};
}

}  // namespace kvsim::analysis
