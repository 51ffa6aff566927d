#pragma once
/// Which cells a running model can serve, and how the prompt reaches their caches.
#include <string>
#include <vector>

#include "sim/loop/closed_loop.hpp"

namespace kvsim::sim {

struct LoopPlan {
  struct LoopCellPlan {
    std::string refused{};  ///< why the cell cannot be run; empty: it can
    Prefill prefill = Prefill::dense;
    bool profiled = false;  ///< its allocation measures the prompt although the cell processes it itself
  };
  std::vector<LoopCellPlan> cells;  ///< as in the request
};

/// Throws Error(usage) when turns are asked that cannot follow each other (closed_loop.hpp).
LoopPlan plan_loop(const trace::Sequence& sequence, const LoopRequest& request);

}  // namespace kvsim::sim
